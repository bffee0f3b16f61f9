"""Tokenizers: the ids that a file states, texts without ids, and the fingerprint.

Whatever decides ids changes the fingerprint, and what does not leaves it.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from dgmark.checkpoint.tokenizer import Tokenizer, read_tokenizer, wrap
from dgmark.errors import CheckpointFormat, InputError
from support.known_keys import builtin_tokenizer

Change = Callable[[dict[str, Any]], None]


def changed(change: Change) -> Tokenizer:
    """The built-in tokenizer, its file changed."""
    state = json.loads(builtin_tokenizer().backend.to_str())
    change(state)
    return wrap(tokenizers.Tokenizer.from_str(json.dumps(state)), "changed")


def two_merges_exchanged(state: dict[str, Any]) -> None:
    merges = state["model"]["merges"]
    merges[100], merges[101] = merges[101], merges[100]


def one_more_special_token(state: dict[str, Any]) -> None:
    content = next(word for word, number in state["model"]["vocab"].items() if number == 300)
    state["added_tokens"].append({"id": 300, "content": content, "special": True, **FLAGS})


FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
DECIDING: dict[str, Change] = {
    "lower case": lambda state: state.update(normalizer={"type": "Lowercase"}),
    # no word of the probe text is
    "a word exchanged": lambda state: state.update(
        normalizer={"type": "Replace", "pattern": {"String": " the"}, "content": " teh"}
    ),
    "one merge less": lambda state: state["model"]["merges"].pop(),
    "two merges exchanged": two_merges_exchanged,
    "no pre-tokenizer": lambda state: state.update(
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    ),
    "one more special token": one_more_special_token,
}


@pytest.mark.parametrize("change", DECIDING.values(), ids=DECIDING)
def test_what_decides_ids_changes_the_fingerprint(change: Change) -> None:
    assert changed(change).fingerprint != builtin_tokenizer().fingerprint


SWITCHED_OFF: dict[str, Change] = {
    "truncation": lambda state: state.update(
        truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    ),
    "padding": lambda state: state.update(
        padding={"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None}
        | {"pad_id": 3, "pad_type_id": 0, "pad_token": "<|pad|>"}
    ),
    "dropout": lambda state: state["model"].update(dropout=0.5),
}


@pytest.mark.parametrize("change", SWITCHED_OFF.values(), ids=SWITCHED_OFF)
def test_what_is_switched_off_leaves_fingerprint_and_ids(change: Change) -> None:
    other, builtin = changed(change), builtin_tokenizer()
    assert other.fingerprint == builtin.fingerprint
    text = "Once upon a time there was an old king who lived in a castle by the sea."
    assert other.encode(text) == builtin.encode(text)
    assert other.encode_batch([text, "a"]) == builtin.encode_batch([text, "a"])


def test_sequences_around_a_normaliser_leave_the_fingerprint() -> None:
    nfc, lower = {"type": "NFC"}, {"type": "Lowercase"}
    forms: list[Any] = [
        {"type": "Sequence", "normalizers": [nfc, lower]},
        {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [nfc]}, lower]},
        {"type": "Sequence", "normalizers": [lower, nfc]},
        {"type": "Sequence", "normalizers": []},
    ]

    def wrapped(form: Any) -> Tokenizer:
        return changed(lambda state: state.update(normalizer=form))

    one, same, other_order, none = map(wrapped, forms)
    assert one.fingerprint == same.fingerprint != other_order.fingerprint
    assert none.fingerprint == builtin_tokenizer().fingerprint


def test_merges_in_the_notation_of_before_are_the_same_merges() -> None:
    """Older files write a merge as one string with a space."""

    def old_notation(state: dict[str, Any]) -> None:
        state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]

    assert changed(old_notation).fingerprint == builtin_tokenizer().fingerprint


def test_the_fingerprint_of_the_built_in_tokenizer_never_changes() -> None:
    assert builtin_tokenizer().fingerprint == "36cf1a6feadfe58e"


# --- the ids that a file states


def stating(folder: Path, token_id: int, content: str, special: bool) -> Tokenizer:
    """The built-in tokenizer, read from a file that states one token more."""
    state = json.loads(builtin_tokenizer().backend.to_str())
    state["added_tokens"].append({"id": token_id, "content": content, "special": special, **FLAGS})
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    return read_tokenizer(folder / "tokenizer.json", "stated")


@pytest.mark.parametrize("special", [True, False], ids=["special", "plain"])
@pytest.mark.parametrize(
    ("token_id", "content"),
    [(9000, "<|more|>"), (300, "<|more|>"), (1, "the")],
    ids=["after a hole", "of another token", "of a word that has one"],
)
def test_a_token_that_would_get_another_id_than_its_file_states_is_refused(
    tmp_path: Path, token_id: int, content: str, special: bool
) -> None:
    with pytest.raises(CheckpointFormat, match=rf"states id {token_id} for the token .*{re.escape(content)}"):
        stating(tmp_path, token_id, content, special)


def test_a_token_that_gets_its_id_is_read(tmp_path: Path) -> None:
    token_id = builtin_tokenizer().vocab_size
    assert stating(tmp_path, token_id, "<|more|>", special=True).encode("<|more|>") == [token_id]


# --- texts without ids

UNIGRAM = tokenizers.models.Unigram([("a", -1.0), ("b", -2.0), ("c", -3.0)])
WORDS = tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="[UNK]")


@pytest.mark.parametrize("model", [UNIGRAM, WORDS], ids=["Unigram", "WordLevel"])
def test_a_text_that_a_tokenizer_cannot_encode_is_bad_input(model: Any) -> None:
    tokenizer = wrap(tokenizers.Tokenizer(model), "no unknown token")
    assert tokenizer.encode_batch(["a", "b"]) == [tokenizer.encode("a"), tokenizer.encode("b")]
    calls: list[Callable[[], object]] = [
        partial(tokenizer.encode, "zebra"),
        partial(tokenizer.encode_with_offsets, "zebra"),
        partial(tokenizer.encode_batch, ["a", "zebra", "b"]),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"'no unknown token' cannot encode this text .*no unknown token"):
            call()
