"""Tables of the pages that the code could leave behind: names, fields, defaults and computed figures."""

import re
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest

import dgmark
from dgmark import DecodeConfig, errors
from dgmark.checkpoint.families import FAMILIES
from dgmark.columns.row_schema import CHECK_FIELDS, GENERATE_FIELDS
from dgmark.detection.results.detection import DETECT_FIELDS
from dgmark.detection.statistics.expected import tokens_needed
from dgmark.report.joined import MAX_REPORTS
from dgmark.watermark.bigram import DEFAULT_SUBKEYS, BigramSpec
from dgmark.watermark.key_file import KeyFile
from dgmark.watermark.measured import PAIRS
from dgmark.watermark.position import PositionSpec
from dgmark.watermark.rules import find_rule
from dgmark_documents.reading import MB, Limits
from dgmark_lab.attacks import ATTACKS
from dgmark_lab.baselines import BASELINES
from dgmark_lab.options import defaults_of
from dgmark_service.bodies import MAX_OPTIONS
from dgmark_service.detection_worker import MAX_SPAN_CHARS
from dgmark_service.generation_schemas import MAX_MESSAGES
from dgmark_service.middleware import _BODY_SECONDS, _READ_SECONDS, _STRANGERS_PART
from dgmark_service.openai_schemas import MAX_PROMPTS
from dgmark_service.schemas import MAX_ITEMS, MAX_KEYS, MAX_TEXTS
from dgmark_service.settings import ServiceSettings
from support.known_keys import known_spec
from support.page_tables import FORMATS, ROOT, names, table
from support.signatures import arguments_of

EVALUATION = "lab/docs/evaluation.md"


OF_KEY_FILE = {*KeyFile.model_fields, *(one.name for spec in (BigramSpec, PositionSpec) for one in fields(spec))}


@pytest.mark.parametrize(
    ("page", "heading", "number", "expected"),
    [
        (FORMATS, "Key file", 0, OF_KEY_FILE),
        ("docs/decoding.md", "The main options", 1, set(get_args(get_type_hints(DecodeConfig)["strategy"]))),
        ("docs/models.md", "Families", 0, set(FAMILIES)),
        (EVALUATION, "Baselines", 0, set(BASELINES)),
        (EVALUATION, "Attacks", 0, set(ATTACKS)),
    ],
)
def test_the_first_column_names_what_there_is(page: str, heading: str, number: int, expected: set[str]) -> None:
    assert names([row[0].partition(": ")[0] for row in table(page, heading, number)]) == expected


def test_tables_name_the_columns_that_are_added() -> None:
    rows = dict(table("docs/scale.md", "Columns in Python"))
    written = {*GENERATE_FIELDS, *CHECK_FIELDS, "check"}
    assert names([rows["`DetectColumns`"]]) == set(DETECT_FIELDS)
    assert {one.partition("=")[0] for one in re.findall("`(.+?)`", rows["`GenerateColumns`"])} == written


def test_the_table_of_attacks_names_their_options() -> None:
    stated = {row[0].strip("`"): names(row[2:]) for row in table(EVALUATION, "Attacks")}
    assert {name: stated[name] - set(ATTACKS) for name in ATTACKS} == {
        name: set(defaults_of(kind)) for name, kind in ATTACKS.items()
    }


def test_every_exit_code_of_an_error_is_explained() -> None:
    explained = {int(code) for row in table(FORMATS, "Exit codes") for code in row[0].split(", ")}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")]
    assert {kind.exit_code for kind in kinds} <= explained


def test_defaults_of_the_main_options_are_those_of_the_code() -> None:
    defaults = {f"--{one.name.replace('_', '-')}": getattr(DecodeConfig(), one.name) for one in fields(DecodeConfig)}
    stated = {row[0].strip("`"): row[1] for row in table("docs/decoding.md", "The main options")}
    shared = defaults.keys() & stated.keys()
    assert {"--length", "--block-length", "--strategy", "--temperature"} <= shared
    assert {flag: stated[flag] for flag in shared} == {flag: str(defaults[flag]) for flag in shared}


def test_the_page_says_which_options_are_settings_and_which_are_of_a_run() -> None:
    settings = {one.name for one in fields(DecodeConfig)}
    flags = [
        flag for row in table("docs/decoding.md", "The main options") for flag in re.findall(r"--([\w-]+)", row[0])
    ]
    assert {"length", "alpha", "top-p"} <= set(flags)
    assert {flag.replace("-", "_") for flag in flags} <= settings
    run = table("docs/decoding.md", "Options of a run")
    assert len(run) >= 8
    for option, _, where, _ in run:
        call, _, keyword = where.strip("`").rstrip(")").partition("(")
        assert not settings & {flag.replace("-", "_") for flag in re.findall(r"--([\w-]+)", option)}
        assert keyword.rstrip("=") in {"", *arguments_of(getattr(dgmark, call))}, where


def test_limits_of_documents_are_those_of_the_code() -> None:
    limits = Limits()
    stated = [int(one) for row in table("docs/documents.md", "Untrusted documents") for one in figures(row[1])]
    sizes = [size // MB for size in (limits.file_bytes, limits.unpacked_bytes, limits.text_bytes)]
    of_code = [sizes[0], sizes[1], limits.parts, limits.pages, limits.seconds, limits.memory_bytes // (1024 * MB)]
    assert stated == [*of_code, sizes[2]]


def test_limits_of_the_service_are_those_of_the_code() -> None:
    have: dict[str, Any] = {one.name: one.default for one in fields(ServiceSettings)}
    assert [int(one) for row in table("docs/service.md", "Limits") for one in figures(row[1])] == [
        *(have["queue"], have["at_once"], have["all_bytes"] // MB, have["all_bytes"] // _STRANGERS_PART // MB),
        *(_BODY_SECONDS, _READ_SECONDS, have["connections"]),
        *(have["body_bytes"] // MB, have["max_chars"], MAX_ITEMS, MAX_TEXTS, MAX_REPORTS),
        *(MAX_PROMPTS, MAX_KEYS, MAX_MESSAGES, MAX_OPTIONS, MAX_SPAN_CHARS),
        *(have["seconds"], have["worker_bytes"] // (1024 * MB), have["text_seconds"], have["rows"]),
        *(have["public_seconds"], int(have["public_rate"].split()[0]), have["public_seconds"] // 2),
    ]


def figures(text: str) -> list[str]:
    return re.findall(r"\d*\.?\d+", text.replace(",", ""))


def test_the_tokens_that_texts_need_are_those_that_keys_expect() -> None:
    rows: list[list[Any]] = []
    for block in PAIRS:
        row = [float(block)]
        for spec in (known_spec(rule="bigram", subkeys=DEFAULT_SUBKEYS), known_spec(code_length=16)):
            other = replace(spec, tokenizer="another model's")
            known = replace(other, expected_match=find_rule(spec.rule).expected_match(other, block))
            needed = [tokens_needed(known, 1e-4, most=most) or 0 for most in (False, True)]
            row += [known.expected_match or 0, *needed]
        rows.append(row)
    stated = table("docs/keys.md", "How many tokens a text needs")
    assert [[float(one) for cell in row for one in figures(cell)] for row in stated] == rows


def test_the_paths_of_the_table_of_places_are_there() -> None:
    for what, where in table("docs/architecture.md", "Where do I find ..."):
        for path in re.findall(r"`([\w/*.]+(?:/|\.py|\.toml))`", where):
            folder = "lab/src/dgmark_lab" if path.startswith("lab/") else "src/dgmark"
            assert list((ROOT / folder).glob(path.removeprefix("lab/"))), f"{what}: no {path}"
