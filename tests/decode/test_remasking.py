"""Remasking: a share of a text's words is replaced by marked ones, all else stays, and the mark is found."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import dgmark
from dgmark.decode.texts.infilling import Infilling
from dgmark.decode.texts.remasking import changes, encode_exactly, replaceable, windows, word_ids
from dgmark.errors import InputError, SettingsError
from dgmark.models.toy import ToyDenoiser
from support.command_line import run
from support.known_keys import bound_key
from support.word_model import WordModel, text_of

MODEL = WordModel(words=256 + 400 + 20, end_bias=3.0)
KEY = bound_key("infill", MODEL)


TEXT = text_of(300)


def detector(key: dgmark.WatermarkKey) -> dgmark.Detector:
    return dgmark.Detector(key, tokenizer=MODEL.tokenizer)


def remask(text: str = TEXT, key: dgmark.WatermarkKey | None = KEY, **options: Any) -> Infilling:
    settings = {"share": 0.5, "block_length": 512, **options}
    made: list[Infilling] = dgmark.infill(MODEL, [text], key=key, seed=5, **settings)
    return made[0]


@pytest.mark.parametrize("rule", ["bigram", "position"])
def test_the_mark_is_found_and_only_under_its_key(rule: Any) -> None:
    key = bound_key("infill", MODEL, rule=rule)
    made = remask(key=key)
    assert made.remasking is not None
    found = detector(key).detect(made.text)
    assert made.remasking.p_value == found.p_value
    assert found.p_value < 1e-6
    assert detector(bound_key("another", MODEL, rule=rule)).detect(made.text).verdict != "watermarked"
    assert detector(key).detect(TEXT).verdict != "watermarked"


def test_it_says_what_it_did() -> None:
    made = remask()
    done, tokens = made.remasking, MODEL.tokenizer.encode(TEXT)
    assert done is not None
    assert done.original == TEXT
    assert done.masked == sum(end - start for start, end in made.holes) / len(tokens) == pytest.approx(0.5, abs=0.01)
    changed = [(old, new) for old, new in changes(TEXT, made.text) if old != new]
    assert len(changed) == round(done.changed * len(tokens)) > 100
    assert made.token_ids == MODEL.tokenizer.encode(made.text)
    assert [made.text[start:end].count(" ") for start, end in made.spans] == [end - start for start, end in made.holes]
    assert "".join(part for part in made.parts if isinstance(part, str)) == _without(made.text, made.spans)
    assert sorted(made.trace.position) == [place for hole in made.holes for place in range(*hole)]
    assert made.to_row("a")["changed"] == done.changed


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text


def test_the_warning_of_a_mark_that_will_not_be_found_names_the_share() -> None:
    with pytest.warns(dgmark.MarkWarning, match=r"or allow more choice \(.*\), or replace a larger share"):
        remask(share=0.05, check=True)


def test_a_larger_share_is_expected_to_carry_more_and_the_target_stops_early() -> None:
    some, most = remask(share=0.1).remasking, remask(share=0.9).remasking
    stopped = remask(share=0.9, target=1e-4).remasking
    assert some is not None and most is not None and stopped is not None  # noqa: PT018
    assert stopped.p_value <= 1e-4  # type: ignore[operator]
    assert stopped.masked < most.masked
    assert some.expected_p > most.expected_p  # type: ignore[operator]
    assert some.p_value > most.p_value  # type: ignore[operator]


FORMATTED = (
    "# aa bb cc\r\n\n  Name dd ee\tff 12 gg3 don't hh-ii.\n"
    '"jj kk," ll “mm nn” oo `pp qq` http://rr ss@tt\n```\n aa bb\n```\n> cc dd\n ee ff\n'
)


def test_words_are_replaced_and_all_else_stays_byte_by_byte() -> None:
    encoded = encode_exactly(MODEL.tokenizer, FORMATTED)
    places = replaceable(FORMATTED, encoded, word_ids(MODEL.tokenizer), keep=None)
    spans = [encoded.offsets[place] for place in places]
    assert [FORMATTED[slice(*span)].strip() for span in spans] == ["dd", "ee", "ll", "oo", "ee", "ff"]
    made = remask(FORMATTED, share=1.0)
    assert made.text != FORMATTED
    assert _without(made.text, made.spans) == _without(FORMATTED, spans)
    assert all(re.fullmatch("( [a-t]{1,2})+", made.text[start:end]) for start, end in made.spans)


def test_a_quotation_that_is_not_closed_keeps_nothing_beyond_its_paragraph() -> None:
    text = 'Start "aa bb\n\n cc" dd "ee\n ff" gg'
    encoded = encode_exactly(MODEL.tokenizer, text)
    places = replaceable(text, encoded, word_ids(MODEL.tokenizer), keep=None)
    assert [text[slice(*encoded.offsets[place])].strip() for place in places] == ["bb", "cc", "dd", "gg"]


def test_what_the_user_keeps_stays() -> None:
    text = "Start <keep>aa bb\n cc dd</keep> ee ff"
    made = remask(text, share=1.0, keep="<keep>.*?</keep>")
    assert made.text.startswith("Start <keep>aa bb\n cc dd</keep> ")
    assert len(made.holes) == 1
    assert made.remasking is not None
    assert made.remasking.keep == "<keep>.*?</keep>"


def test_the_words_of_which_the_model_is_least_sure_are_masked() -> None:
    class HalfSure(WordModel):
        def __call__(self, ids: Any) -> Any:
            logits = super().__call__(ids)
            logits[:, : logits.shape[1] // 2, 300] += 50
            return logits

    (made,) = dgmark.infill(HalfSure(words=676), [TEXT], key=None, share=0.3, block_length=512)
    assert min(start for start, _ in made.holes) >= len(made.token_ids) // 2


def test_a_text_longer_than_the_context_is_marked_in_windows() -> None:
    small = WordModel(words=676, context_length=64)
    (made,) = dgmark.infill(small, [TEXT], key=KEY, share=0.9, seed=1)
    assert len(made.token_ids) > 300
    assert made.holes[0][0] < 20 < 280 < made.holes[-1][1]
    assert detector(KEY).detect(made.text).p_value < 1e-9
    for start, stop, own in windows(300, 64, [*range(300)]):
        assert stop - start <= 64
        assert start <= own[0] <= own[-1] < stop
    assert [place for _, _, own in windows(300, 64, [*range(300)]) for place in own] == [*range(300)]


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("Start 12 Ab", {}, InputError, "no word of this text may be replaced"),
        (["Start", 3], {}, InputError, "string without holes"),
        (TEXT, {"share": 0.0}, SettingsError, "share 0.0"),
        (TEXT, {"share": 1.5}, SettingsError, "share 1.5"),
        (TEXT, {"keep": "("}, SettingsError, "regular expression"),
        (TEXT, {"target": 0.0}, SettingsError, "not a p-value"),
        (TEXT, {"target": 0.1, "key": None}, SettingsError, "without a mark"),
        (["Start", 3], {"share": None, "keep": "a"}, SettingsError, "give the share"),
    ],
)
def test_what_cannot_be_done_is_refused(
    text: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        remask(text, **options)


def test_a_text_that_the_tokenizer_changes_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match="from character 3 on"):
        encode_exactly(ToyDenoiser().tokenizer, "w1  w2")


def test_the_command_marks_a_file_and_resumes_rows(tmp_path: Path) -> None:
    key, essay, rows = (tmp_path / name for name in ("key.json", "a.txt", "rows.jsonl"))
    assert run("keygen", key).exit_code == 0
    text = "Once upon a time there was an old man who lived by the sea with his wife and a cat.\n"
    essay.write_text(text)
    options = ["infill", "--key", key, "--share", ".3"]
    result = run(*options, "--text", essay, code=0)
    assert result.stdout != text + "\n"
    assert len(result.stdout.split()) == len(text.split())
    assert re.search(r"\d+% of the tokens masked, \d+% changed; p-value \S+ \(expected \S+\)", result.stderr)
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"id": "a", "text": text}) + "\n")
    files = ["--texts", source, "--out", rows]
    assert run(*options, *files).exit_code == 0
    written = rows.read_text()
    assert json.loads(written)["original"] == text
    assert run(*options, *files).exit_code == 0
    assert rows.read_text() == written
    assert run(*options, *files, "--keep", "sea").exit_code != 0
    assert rows.read_text() == written
