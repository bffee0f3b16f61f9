"""Files of texts into a file of rows: resuming, several processes, bad rows among good ones, settings kept apart."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers

from dgmark import Detector, Keyring, WatermarkKey, detect_file
from dgmark.checkpoint.tokenizer import wrap
from dgmark.detection.scorer import Scorer
from dgmark.errors import InputError, ModelNotFound, ResumeMismatch, SettingsError, TokenizerMismatch
from dgmark_lab.rule_keys import rule_key
from support.command_line import rows
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_ids
from support.unchecked import unchecked

KEY = known_key("settings")
DETECTOR = Detector(KEY, tokenizer=builtin_tokenizer())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """150 rows: texts, one of ids that are marked, one of ids of another vocabulary, one that is not a row."""
    path = tmp_path / "in.jsonl"
    lines: list[Any] = [{"id": f"row {n}", "text": f"This is text number {n} of many."} for n in range(150)]
    lines[3] = {"id": "marked", "token_ids": marked_ids(KEY, 200).tolist()}
    lines[70] = {"id": "foreign", "token_ids": [5, 9000]}
    lines[80] = {"id": "empty", "text": " "}
    lines[90] = {"id": "no text"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# --- the file ------------------------------------------------------------------------------------


def test_a_file_has_one_row_a_text_in_order_and_the_counts_are_returned(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    tally = detect_file(DETECTOR, source, out)
    made = rows(out.read_text())
    assert [row["id"] for row in made][:4] == ["row 0", "row 1", "row 2", "marked"]
    assert [row["id"] for row in made if "error" in row] == ["foreign", "empty", "no text"]
    assert "token id 9000" in made[70]["error"]
    assert dict(tally.verdicts) == {"watermarked": 1, "uncertain": 146}
    assert (tally.scored, tally.unusable, tally.resumed) == (147, 3, 0)
    assert tally.first_unusable is not None
    assert tally.first_unusable.row_id == "foreign"
    text = "This is text number 0 of many."
    added = {"source_sha256": hashlib.sha256(text.encode()).hexdigest(), "settings": made[0]["settings"]}
    assert made[0] == {**DETECTOR.detect(text).to_row("row 0"), **added}


def test_rows_are_handed_on_once_they_are_in_the_file(source: Path, tmp_path: Path) -> None:
    out, handed = tmp_path / "out.jsonl", list[dict[str, Any]]()

    def take(made: list[dict[str, Any]]) -> None:
        handed.extend(made)
        written = rows(out.read_text())  # which also hold what all rows of the file share
        assert len(written) == len(handed)
        assert all(new.items() <= row.items() for new, row in zip(handed, written, strict=True))

    detect_file(DETECTOR, source, out, on_rows=take)
    assert len(handed) == 150
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:100]))
    handed.clear()
    detect_file(DETECTOR, source, out, on_rows=handed.extend)  # those that an earlier run wrote are left out
    assert [row["id"] for row in handed] == [f"row {n}" for n in range(100, 150)]
    with unchecked(), pytest.raises(SettingsError, match="on_rows is a function of a list of rows, not a int"):
        detect_file(DETECTOR, source, out, on_rows=5)  # type: ignore[arg-type]


def test_a_row_states_the_hash_of_the_text_or_ids_it_was_made_from(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    text, ids = "Die Möwe \ud800 und das Meer", [5, 6, 7]
    lines: list[Any] = [{"id": "text", "text": text}, {"id": "ids", "token_ids": ids}]
    lines += [{"id": "foreign", "token_ids": [5, 9000]}, {"id": "none"}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    detect_file(DETECTOR, source, out)
    hashed = (text.encode("utf-8", "surrogatepass"), b"[5,6,7]", b"[5,9000]")
    known = [hashlib.sha256(content).hexdigest() for content in hashed]
    assert [row.get("source_sha256") for row in rows(out.read_text())] == [*known, None]


def test_a_key_stands_for_its_detector_and_inputs_may_be_several(source: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A text of its own.")
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    detect_file(KEY, [text, str(source), tmp_path / "missing.txt"], one)
    detect_file(DETECTOR, [str(text), source, tmp_path / "missing.txt"], str(two))
    assert one.read_bytes() == two.read_bytes()
    made = rows(one.read_text())
    assert (len(made), made[0]["id"]) == (152, str(text))
    assert "cannot be read" in made[-1]["error"]


def test_a_text_that_the_tokenizer_cannot_encode_is_one_bad_row(tmp_path: Path) -> None:
    tokenizer = wrap(tokenizers.Tokenizer(tokenizers.models.Unigram([("a", -1.0), ("b", -2.0)])), "no unknown token")
    key = WatermarkKey.generate(SimpleNamespace(tokenizer=tokenizer, vocab_size=10))
    detector = Detector(key, tokenizer=tokenizer)
    texts = ["abab", "zebra", "a\nb", "bab"]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    tally = detect_file(detector, source, out)
    assert [row.get("verdict") for row in rows(out.read_text())] == ["uncertain", None, None, "uncertain"]
    assert (tally.scored, tally.unusable) == (2, 2)
    with pytest.raises(InputError, match=r"^the tokenizer 'no unknown token' cannot encode"):
        detector.detect_many(texts)
    with pytest.raises(InputError, match=r"^the tokenizer 'no unknown token' cannot encode"):
        detector.detect("zebra")


@pytest.mark.parametrize("cut", [1, 40, 64, 65, 149])
def test_a_torn_file_is_resumed_where_it_stopped(source: Path, tmp_path: Path, cut: int) -> None:
    out = tmp_path / "out.jsonl"
    first = detect_file(DETECTOR, source, out)
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:cut]) + lines[cut][:70])
    again = detect_file(DETECTOR, source, out)
    assert out.read_bytes() == whole
    assert (again.resumed, again.verdicts, again.unusable) == (cut, first.verdicts, first.unusable)
    finished = detect_file(DETECTOR, source, out)
    assert out.read_bytes() == whole
    assert (finished.resumed, finished.verdicts) == (150, first.verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"only": [(2, 25)]}], ids=repr)
def test_two_processes_write_what_one_does(source: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    tallies = [detect_file(DETECTOR, source, out, workers=workers, **options) for out, workers in ((one, 1), (two, 2))]
    errors = [str(tally.first_unusable and tally.first_unusable.error) for tally in tallies]
    assert errors[0] == errors[1]
    assert replace(tallies[0], first_unusable=None) == replace(tallies[1], first_unusable=None)
    assert one.read_bytes() == two.read_bytes()


def test_ids_and_ranges_are_those_of_the_detector(tmp_path: Path) -> None:
    ids = marked_ids(KEY, 200).tolist()
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"id": "a", "text": "Only a few words.", "token_ids": ids}) + "\n")
    detect_file(DETECTOR, source, tmp_path / "text.jsonl")
    detect_file(DETECTOR, source, tmp_path / "ids.jsonl", ids=True)
    detect_file(DETECTOR, source, tmp_path / "only.jsonl", ids=True, only=[(10, 60)])
    text, whole, part = (rows((tmp_path / f"{name}.jsonl").read_text())[0] for name in ("text", "ids", "only"))
    assert text["num_tokens_scored"] < 10
    assert whole["p_value"] == DETECTOR.detect(ids).p_value
    assert part["p_value"] == DETECTOR.detect(ids, only=[(10, 60)]).p_value


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ('{"id": "another", "text": "A text."}\n', "same inputs in the same order"),
        (
            '{"id": "row 0", "text": "This is text number 0 of many."}\n',
            "holds row 'row 1' where the inputs have no more;",
        ),
    ],
    ids=["other", "fewer"],
)
def test_a_file_of_other_inputs_is_not_resumed(source: Path, tmp_path: Path, inputs: str, message: str) -> None:
    out = tmp_path / "out.jsonl"
    detect_file(DETECTOR, source, out)
    source.write_text(inputs)
    with pytest.raises(ResumeMismatch, match=message):
        detect_file(DETECTOR, source, out)


@pytest.mark.parametrize(
    ("scorer", "options"),
    [
        (Detector(KEY, fpr=0.5), {}),
        (Detector(known_key("another")), {}),
        (Detector(KEY, phase="start"), {}),
        (Detector(KEY, normalise=["nfc"]), {}),
        (Keyring([KEY, known_key("another")]), {}),
        (Detector(rule_key("kgw", KEY)), {}),
        (DETECTOR, {"only": [(0, 3)]}),
        (DETECTOR, {"ids": True}),
    ],
)
def test_rows_of_other_settings_are_not_mixed(
    source: Path, tmp_path: Path, scorer: Scorer, options: dict[str, Any]
) -> None:
    out = tmp_path / "out.jsonl"
    detect_file(DETECTOR, source, out)
    whole = out.read_bytes()
    with pytest.raises(ResumeMismatch):
        detect_file(scorer, source, out, **options)
    assert out.read_bytes() == whole


@pytest.mark.parametrize("name", ["row 1", "marked", "foreign", "empty", "row 149"])
def test_a_text_that_changed_is_refused(source: Path, tmp_path: Path, name: str) -> None:
    """Finished rows and error rows alike; error rows at the end are made again."""
    out = tmp_path / "out.jsonl"
    detect_file(DETECTOR, source, out)
    whole = out.read_bytes()
    changed = [json.loads(line) for line in source.read_text().splitlines()]
    for line in changed:
        if line["id"] == name:
            line.pop("token_ids", None)
            line["text"] = "Another text, which was not scored."
    source.write_text("".join(json.dumps(line) + "\n" for line in changed))
    with pytest.raises(ResumeMismatch, match=f"a row '{name}' made from a different text"):
        detect_file(DETECTOR, source, out)
    assert out.read_bytes() == whole


def test_error_rows_at_the_end_are_made_again_and_those_before_stay(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = ['{"id": "a"}', '{"id": "b", "text": "B."}', '{"id": "c"}', '{"id": "d", "text": " "}']
    source.write_text("\n".join(lines) + "\n")
    detect_file(DETECTOR, source, out)
    lines[2:] = ['{"id": "c", "text": "C."}', '{"id": "d", "text": "D."}', '{"id": "e", "text": "E."}']
    source.write_text("\n".join(lines) + "\n")
    tally = detect_file(DETECTOR, source, out)
    assert (tally.resumed, tally.scored, tally.unusable) == (2, 4, 1)
    assert [(row["id"], "error" in row) for row in rows(out.read_text())] == [
        ("a", True), ("b", False), ("c", False), ("d", False), ("e", False)
    ]  # fmt: skip


# --- what is refused -----------------------------------------------------------------------------


SPANS, RANGES = {"spans": True}, {"only": [(0, 3)]}


@pytest.mark.parametrize(
    ("scorer", "options", "message"),
    [
        (DETECTOR, SPANS, "spans finds nothing, as it needs a key of rule bigram"),
        (Keyring([KEY]), RANGES, "need one key: use a Detector, not a Keyring"),
        (Keyring([KEY, KEY]), SPANS, "spans finds nothing, as it needs a key of rule bigram"),
        (Detector(KEY, normalise=["nfc"]), RANGES, "leave normalisation out"),
        (
            Detector(rule_key("kgw", KEY)),
            SPANS,
            "spans finds nothing, as this key's rule tests whole texts only: leave it out",
        ),
    ],
)
def test_spans_and_ranges_need_one_key_that_finds_them(
    source: Path, tmp_path: Path, scorer: Scorer, message: str, options: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError, match=message):
        detect_file(scorer, source, tmp_path / "out.jsonl", **options)
    assert not (tmp_path / "out.jsonl").exists()


def test_an_unavailable_tokenizer_is_an_error_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    lost = WatermarkKey(replace(KEY.spec, tokenizer="./moved-away"), KEY.key_id, KEY.secret)
    with pytest.raises(ModelNotFound, match="--tokenizer"):
        detect_file(lost, source, out)
    other = WatermarkKey(replace(KEY.spec, tokenizer_fingerprint="0" * 16), KEY.key_id, KEY.secret)
    with pytest.raises(TokenizerMismatch):
        detect_file(other, source, out)
    assert not out.exists()
