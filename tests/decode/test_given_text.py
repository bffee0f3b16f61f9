"""The strings given to `infill` stand in the filled text byte for byte, whatever tokenizers make of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import dgmark
from dgmark.checkpoint.tokenizer import Tokenizer, wrap
from dgmark.decode.texts.holes import holed_text
from dgmark.decode.texts.infilling import Infilling
from dgmark.errors import InputError
from dgmark.models.toy import END_TOKEN, MASK_TOKEN
from support.known_keys import bound_key
from support.word_model import WordModel, text_of

State = dict[str, Any]
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def normalised(*steps: State) -> Callable[[State], None]:
    return lambda state: state.update(normalizer={"type": "Sequence", "normalizers": list(steps)})


def prefix_space(state: State) -> None:
    state["pre_tokenizer"]["add_prefix_space"] = True


def metaspace(state: State) -> None:
    """Words with a sign for the space before them, and bytes of what is not a word, as Llama 2 has."""
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [word.replace("Ġ", "▁") for word in state["model"]["vocab"] if word.startswith("Ġ")]
    names = [MASK_TOKEN, END_TOKEN, *fallback, "▁", *"abcdefghijklmnopqrst", *words]
    vocab = {name: number for number, name in enumerate(dict.fromkeys(names))}
    merges = [[part.replace("Ġ", "▁") for part in pair] for pair in state["model"]["merges"]]
    state["model"] |= {"vocab": vocab, "merges": merges, "byte_fallback": True, "unk_token": None}
    state["pre_tokenizer"] = METASPACE
    parts = [{"type": "ByteFallback"}, {"type": "Fuse"}, METASPACE]
    state["decoder"] = {"type": "Sequence", "decoders": [parts[2], parts[0], parts[1]]}


CHANGES: dict[str, Callable[[State], None]] = {
    "byte level": lambda _: None,
    "NFC": normalised({"type": "NFC"}),
    "NFKD": normalised({"type": "NFKD"}),
    "lower case": normalised({"type": "Lowercase"}),
    "strip": normalised({"type": "Strip", "strip_left": True, "strip_right": True}),
    "no accents": normalised({"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}),
    "replaced": normalised({"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}),
    "prefix space": prefix_space,
    "Metaspace": metaspace,
}


@lru_cache
def changed(name: str) -> Tokenizer:
    """The tokenizer of words in letters, with a change."""
    state = json.loads(WordModel(words=700).tokenizer.backend.to_str())
    CHANGES[name](state)
    return wrap(tokenizers.Tokenizer.from_str(json.dumps(state)), name)


@dataclass(frozen=True)
class Changed(WordModel):
    """The model of words in letters, with another tokenizer."""

    words: int = 700
    change: str = ""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return changed(self.change)


def check_given(parts: Sequence[str | int], text: str, spans: Sequence[tuple[int, int]]) -> None:
    """The text without its holes is the strings that were given."""
    rest, at = [], 0
    for start, end in spans:
        rest.append(text[at:start])
        at = end
    between = [""]
    for part in parts:
        if isinstance(part, str):
            between[-1] += part
        else:
            between.append("")
    assert [one.encode() for one in [*rest, text[at:]]] == [one.encode() for one in between]


def filled(change: str, *parts: str | int, **options: Any) -> Infilling:
    model = Changed(change=change)
    key = bound_key("given", model, subkeys=1)
    made: Infilling = dgmark.infill(model, [list(parts)], key=key, seed=2, **options)[0]
    return made


GIVEN: dict[str, list[str | int]] = {
    "accents": ["He drank cafe\u0301 in the gar", 3, "den of the house.", 2],
    "special tokens": [f"The tag {END_TOKEN} ends ", 3, f"{END_TOKEN}{MASK_TOKEN} a text.", 1, MASK_TOKEN],
    "capitals and spaces": ["  Once Upon\n\n A Time  ", 2, "  THERE was\t", 2, "\n"],
    "several bytes": ["日本", 2, "語の", 2, "\U0001f642\u200d", 1, "\u0301x"],
    "holes at the edges": [3, "bcd", 2, 2, " aa"],
}


@pytest.mark.cover(2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("parts", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("round_trip_check", [True, False])
def test_given_strings_stay_byte_for_byte(change: str, parts: list[str | int], round_trip_check: bool) -> None:
    made = filled(change, *parts, block_length=4, round_trip_check=round_trip_check)
    check_given(parts, made.text, made.spans)
    assert made.parts == parts


@pytest.mark.parametrize(("change", "space"), [("byte level", ""), ("prefix space", " "), ("Metaspace", " ")])
def test_a_space_before_a_string_is_written_into_the_hole(change: str, space: str) -> None:
    """Then the text is encoded to what the model saw."""
    model = Changed(change=change)
    text = holed_text(model, ["ab", 1, "bcd", 1, " ef"])
    region = [*model.tokenizer.encode("x ab")[-1:], *text.ids[text.holes[0][1] : text.holes[1][0] + 1]]
    region[-1] = region[0]
    made = text.filled(model.tokenizer, region)
    assert made.text == f"ab ab{space}bcd ab ef"
    assert model.tokenizer.encode(made.text) == made.token_ids


ODD = ["e\u0301", "\u0301", " ", "\n", "A", "\ufb01", "\u0130", "\u200d", END_TOKEN, MASK_TOKEN, " ab", "\u2581"]
TEXTS = st.lists(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(ODD)), max_size=12).map("".join)


@given(st.sampled_from(list(CHANGES)), st.lists(st.one_of(TEXTS, st.integers(1, 4)), max_size=6), st.data())
@settings(max_examples=400)
def test_any_given_strings_stay_whatever_is_filled_in(change: str, parts: list[str | int], data: st.DataObject) -> None:
    model = Changed(change=change)
    parts = ["ab", 1, *parts]
    text = holed_text(model, parts)
    ids = st.integers(0, model.tokenizer.vocab_size - 1)
    region = list(text.ids[text.holes[0][0] : text.holes[-1][1]])
    for start, end in text.holes:
        low = start - text.holes[0][0]
        region[low : low + end - start] = data.draw(st.lists(ids, min_size=end - start, max_size=end - start))
    made = text.filled(model.tokenizer, region)
    check_given(parts, made.text, made.spans)
    assert len(made.token_ids) == len(text.ids)


@pytest.mark.parametrize("change", CHANGES)
def test_where_holes_are_chosen_the_other_words_stay_or_the_text_is_refused(change: str) -> None:
    model, text = Changed(change=change), f"Start {text_of(40)} Cafe\u0301  end."
    key = bound_key("given", model, subkeys=1)
    if model.tokenizer.decode(model.tokenizer.encode(text)) != text:
        with pytest.raises(InputError, match="does not give this text back from character"):
            dgmark.infill(model, [text], key=key, share=0.5)
        return
    (made,) = dgmark.infill(model, [text], key=key, share=0.5, seed=1, block_length=64)
    check_given(made.parts, made.text, made.spans)
    assert made.text.startswith("Start Start")
    assert made.text.endswith(" Cafe\u0301  end.")
    assert len(made.text.split(" ")) == len(text.split(" "))


@pytest.mark.parametrize("half", ["\ud83d", "ab \udfff"])
def test_half_a_character_is_refused_with_its_place(half: str) -> None:
    with pytest.raises(InputError, match=rf"the surrogate '\\u{ord(half[-1]):x}', at character {4 + len(half) - 1}"):
        filled("byte level", "good ", 2, f"bad {half} x")
    assert filled("byte level", "\ud83d\udc4b".encode("utf-16", "surrogatepass").decode("utf-16"), 2).text[0] == "👋"
