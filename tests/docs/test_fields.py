"""The tables of docs/formats.md have the fields of what is really written, and what these fields hold."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import dgmark
from dgmark import Detector
from dgmark.decode.settings_file import TunedSettings
from dgmark.models.load import NetworkDenoiser
from dgmark.report.joined import JoinedReport
from dgmark.report.page import to_json
from dgmark.report.statement import Report
from dgmark.rows.scoring import detect_file
from dgmark.watermark.commitment import KeyCommitment
from dgmark_lab.rule_keys import rule_key
from dgmark_service.token_file import TokenFile
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.page_tables import FORMATS, names, table
from support.surprisal_models import ALL_ALIKE

Row = dict[str, Any]
Make = Callable[[NetworkDenoiser, Path], list[Row]]
KEY = known_key("fields", rule="bigram", subkeys=2)
WRITTEN: Row = {"key": KEY, "check": True, "seed": 1}


def generated(model: NetworkDenoiser, folder: Path) -> list[Row]:
    """The row of a text, and that of one in which a token was deleted."""
    (made,) = dgmark.generate(model, "Once upon a time", length=16, **WRITTEN)
    trace = replace(made.trace, operation=["delete", *made.trace.operation[1:]])
    return [made.to_row("1"), replace(made, trace=trace).to_row("2")]


def infilled(model: NetworkDenoiser, folder: Path) -> list[Row]:
    return [dgmark.infill(model, [["The king ", 4, " the sea."]], **WRITTEN)[0].to_row("1")]


def added_by_share(model: NetworkDenoiser, folder: Path) -> list[Row]:
    made = dgmark.infill(model, ["The king went to the sea."], share=0.5, **WRITTEN)[0].to_row("1")
    return [{name: made[name] for name in made.keys() - infilled(model, folder)[0].keys()}]


def detected(_: object, folder: Path) -> list[Row]:
    """Rows of a document, of JSON Lines and of a table, with all that can be asked for."""
    text = marked_text(KEY.subkey(1), 250)
    (folder / "text.html").write_text(f"<p>{text}</p>", encoding="utf-8")
    (folder / "rows.jsonl").write_text(json.dumps({"id": "1", "text": text}), encoding="utf-8")
    (folder / "table.csv").write_text(f'id,text\n1,"{text.replace(chr(34), chr(39))}"\n', encoding="utf-8")
    detector, out = Detector(KEY, surprisal_model=ALL_ALIKE), folder / "out.jsonl"
    detect_file(
        detector, [folder / name for name in ("text.html", "rows.jsonl", "table.csv")], out, spans=True, payload=True
    )
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def report(_: object, folder: Path) -> list[Row]:
    text, commitment = marked_text(KEY.subkey(1), 250), KeyCommitment.of(KEY)
    return [json.loads(to_json(Report.of(Detector(KEY), "text", text, commitment=commitment)))]


def method(_: object, folder: Path) -> list[Row]:
    return [one["method"] for one in report(None, folder)]


def joined_report(_: object, folder: Path) -> list[Row]:
    single = to_json(Report.of(Detector(KEY), "text", "Few.")).decode()
    return [json.loads(to_json(JoinedReport.of([single], "texts", None)))]


def commitment(_: object, folder: Path) -> list[Row]:
    return [KeyCommitment.of(KEY).model_dump(mode="json")]


def settings(_: object, folder: Path) -> list[Row]:
    return [TunedSettings(model="storyteller", rule="bigram", decoding={}).model_dump()]


def tokens(_: object, folder: Path) -> list[Row]:
    TokenFile(folder / "tokens.json").add("me", ["detect"], expires=datetime(2031, 1, 1, tzinfo=UTC), keys=["main"])
    return [json.loads((folder / "tokens.json").read_text(encoding="utf-8"))]


@pytest.mark.filterwarnings("ignore:1 of 1 texts will not be found")
@pytest.mark.parametrize(
    ("heading", "number", "make", "elsewhere"),
    [
        ("Commitment to a key", 0, commitment, ""),
        ("Settings file", 0, settings, ""),
        ("Rows out of `dgmark generate`", 0, generated, "settings"),
        ("Rows out of `dgmark infill`", 0, infilled, "settings check"),
        ("Rows out of `dgmark infill`", 1, added_by_share, ""),
        ("Rows out of `dgmark detect`", 0, detected, "figures"),
        ("Report", 0, report, "evidence method"),
        ("Report", 1, method, ""),
        ("Report of several texts", 0, joined_report, "reports"),
        ("Access tokens", 0, tokens, ""),
    ],
)
def test_a_table_has_the_fields_of_what_is_written(
    storyteller: NetworkDenoiser, tmp_path: Path, heading: str, number: int, make: Make, elsewhere: str
) -> None:
    rows = make(storyteller, tmp_path)
    lines = [(row[0], row[1]) for row in table(FORMATS, heading, number)]
    check_fields(rows, lines, elsewhere.split())


@pytest.mark.parametrize(("rule", "kind"), [("bigram", "bigram"), ("position", "position"), ("kgw", "a baseline")])
def test_the_table_of_figures_has_those_of_each_rule(rule: str, kind: str, tmp_path: Path) -> None:
    if rule == "bigram":
        found = [row["figures"] for row in detected(None, tmp_path)]
    else:
        found = [Detector(rule_key(rule, KEY)).detect([*range(300, 400)]).to_row("1")["figures"]]
    lines = table(FORMATS, "Rows out of `dgmark detect`", 1)
    check_fields(found, [(field, meaning) for of, field, meaning in lines if of.replace("[", "").startswith(kind)], [])


def check_fields(rows: list[Row], lines: list[tuple[str, str]], elsewhere: list[str]) -> None:
    """Check that the lines of a table name the fields of rows, and in their meanings the fields within these.

    Args:
        rows: what is written.
        lines: fields and their meaning.
        elsewhere: fields whose own fields stand elsewhere on the page.
    """
    stated = {name: meaning for cell, meaning in lines for name in names([cell])}
    assert set(stated) == {name for row in rows for name in row}
    for name in stated.keys() - elsewhere:
        within = fields_of(row[name] for row in rows if name in row)
        if within:
            named = {one for one in names([stated[name]]) if not one.startswith("-")}  # no option
            assert named - stated.keys() == within - stated.keys(), name


def fields_of(values: Iterable[Any]) -> set[str]:
    """The fields of values that are objects or lists of objects."""
    objects = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return {name for one in objects if isinstance(one, dict) for name in one}
