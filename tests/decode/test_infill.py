"""Infilling: the text around the holes stays, the holes carry the mark, and the detector finds it there alone."""

import json
from pathlib import Path
from typing import Any

import pytest

import dgmark
from dgmark import errors
from dgmark.decode.texts.holes import holes_in
from dgmark.errors import SettingsError
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.position import tables_of
from support.cases import cases
from support.command_line import run
from support.known_keys import bound_key, known_key
from support.plain_decoding import bits_at

TOY = ToyDenoiser(end_bias=3.0)
PARTS: list[str | int] = ["w1 w2 w3", 7, "w4 w5", 12, "w6 w7 w8 w9"]


def toy_key() -> dgmark.WatermarkKey:
    return bound_key("infill", TOY)


@pytest.mark.parametrize("settings", cases(__file__, "settings"))
def test_given_tokens_stay_and_every_hole_is_filled(settings: dict[str, Any]) -> None:
    key = bound_key("infill", TOY, rule="position" if "lookahead" in settings else "bigram")
    (made,) = dgmark.infill(TOY, [PARTS], key=key, **settings)
    words = made.text.split()
    assert words[:3] == ["w1", "w2", "w3"]
    assert words[10:12] == ["w4", "w5"]
    assert words[24:] == ["w6", "w7", "w8", "w9"]
    assert made.holes == [(3, 10), (12, 24)]
    assert len(made.token_ids) == 28
    # neither masks nor end tokens, though this model likes to end
    assert not {TOY.mask_id, *TOY.end_ids} & set(made.token_ids)


def test_positions_are_counted_from_the_text() -> None:
    key = bound_key("infill", TOY, rule="position")
    (made,) = dgmark.infill(TOY, [PARTS], key=key)
    assert sorted(made.trace.position) == [*range(3, 10), *range(12, 24)]
    table = tables_of(key).table()
    for position, token, matched in zip(made.trace.position, made.trace.token_id, made.trace.matched, strict=True):
        assert matched == (table[token] == tables_of(key).code[position % 16])
    assert sum(made.trace.matched) > 13


def test_every_step_sees_the_text_after_the_hole() -> None:
    (one,) = dgmark.infill(TOY, [["w1", 8, "w2"]], key=None, temperature=0)
    (other,) = dgmark.infill(TOY, [["w1", 8, "w3"]], key=None, temperature=0)
    assert one.token_ids[1:9] != other.token_ids[1:9]


def test_a_token_in_a_hole_matches_the_given_tokens_on_both_sides() -> None:
    """Under another key half of about 220 pairs match, with a standard deviation of 7."""
    model = ToyDenoiser(words=400)
    keys = [bound_key(name, model) for name in ("infill", "another")]
    signs: list[list[int]] = [[], []]
    for seed in range(40):
        parts: list[str | int] = [f"w{seed} w2 w3", 1, f"w{seed + 50} w5 w6"]
        (made,) = dgmark.infill(model, [parts], key=keys[0], seed=seed)
        text, token = [-1 if place == 3 else id_ for place, id_ in enumerate(made.token_ids)], made.token_ids[3]
        for key, found in zip(keys, signs, strict=True):
            found += [sign for sign in bits_at(key, text, 3, [token])[token] if sign]
    assert sum(sign > 0 for sign in signs[0]) > 0.7 * len(signs[0]) > 0.7 * 200
    assert abs(sum(sign > 0 for sign in signs[1]) - len(signs[1]) / 2) < 30


def test_a_text_does_not_depend_on_the_others() -> None:
    texts: list[list[str | int]] = [PARTS, ["w3", 9], [5, "w1"]]
    together = dgmark.infill(TOY, texts, key=toy_key(), seed=4)
    alone = [dgmark.infill(TOY, [parts], key=toy_key(), seed=4 + i)[0] for i, parts in enumerate(texts)]
    assert together == alone


@pytest.mark.parametrize(("parts", "error", "message"), cases(__file__, "not_filled"))
def test_what_cannot_be_filled_is_refused(parts: list[Any], error: str, message: str) -> None:
    with pytest.raises(getattr(errors, error), match=message):
        dgmark.infill(TOY, [parts], key=None)


@pytest.mark.parametrize("settings", [{"length": 64}, {"steps": 8}], ids=str)
def test_settings_that_the_holes_decide_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"length|steps"):
        dgmark.infill(TOY, [PARTS], key=None, **settings)


def test_holes_are_read_out_of_a_text() -> None:
    assert holes_in("a [mask:3] b[mask:12]") == ["a ", 3, " b", 12]
    assert holes_in("[mask:1]") == [1]
    assert holes_in("no [mask] here") == ["no [mask] here"]


@pytest.mark.slow
def test_the_mark_is_found_in_the_holes_alone(storyteller: NetworkDenoiser) -> None:
    key = known_key("infill", rule="bigram")
    given = "The old man sat down by the fire, and after a while he said to the children: "
    parts: list[str | int] = [given, 60, " Then they all went home. ", 40]
    (made,) = dgmark.infill(storyteller, [parts], key=key, seed=3, cache="dual")
    assert made.text.startswith(given)
    (first, second) = made.spans
    assert made.text[first[1] : second[0]].strip() == "Then they all went home."
    found = dgmark.Detector(key).detect(made.text, only=made.spans)
    assert found.verdict == "watermarked"
    assert 90 <= found.num_tokens_scored <= 105  # encoded again, the tokens at the edges may differ
    assert (
        dgmark.Detector(known_key("another", rule="bigram")).detect(made.text, only=made.spans).verdict != "watermarked"
    )


def test_the_command_fills_holes_and_says_where(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    assert run("keygen", key).exit_code == 0
    result = run("infill", "--key", key, "Once upon a time [mask:6] lived a king.", "--json", code=0)
    row = json.loads(result.stdout)
    start, end = row["spans"][0]
    assert row["text"][:start] + row["text"][end:] == "Once upon a time  lived a king."
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"id": "a", "text": "no hole"}\n{"id": "b", "parts": ["Once", 4]}\n')
    result = run("infill", "--no-watermark", "--texts", rows, code=0)
    bad, good = map(json.loads, result.stdout.splitlines())
    assert "no hole" in bad["error"]
    assert good["holes"] == [[1, 5]]
    assert run("infill", "--no-watermark", "no hole").exit_code == 4
    assert run("infill", "--no-watermark").exit_code == 2
