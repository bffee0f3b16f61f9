"""Running experiments: every one runs, rows are made once, and what was made before is found again."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lab_support import rows_of, write_rows

from dgmark.decode import generate
from dgmark.detection.detector import Detector
from dgmark.errors import DgmarkError, KeyFileError, NoTexts, PromptTooLong, SettingsError
from dgmark.models.assembly import NARRATOR_BASE
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import tables_of
from dgmark_lab.experiments.cells import StoredRun, cell_keys
from dgmark_lab.experiments.plan import RunOptions, recipe_hash
from dgmark_lab.experiments.report import to_page, write_report
from dgmark_lab.experiments.run import TimeLeft, run_experiment, run_key
from dgmark_lab.experiments.spec import Cell, Experiment, experiment_names, load_experiment
from dgmark_lab.experiments.store import Store, checkpoint_hash
from dgmark_lab.rule_keys import rule_key
from dgmark_lab.toml_files import parse_toml
from support import tiny_gguf
from support.toy_experiments import SMALL, TOY, load_toy, report_toy, run_toy

MARKED = """
[[cells]]
name = "marked"
key = { rule = "position" }
null = "unmarked"
"""


KGW = '[[cells]]\nname = "kgw"\nkey = { rule = "kgw" }\n'


def small(more: str = MARKED, prompts: str = "two") -> Experiment:
    texts = ", ".join(f'"w{number} w1"' for number in range(5))
    content = SMALL.replace('["one", "two"]', f"[{texts}]").replace("texts = 2", "texts = 5")
    return parse_toml(content.replace('prompts = "two"', f'prompts = "{prompts}"') + more, Experiment, "small.toml")


def lines(root: Path, kind: str = "texts") -> list[dict[str, Any]]:
    return rows_of(*sorted((root / kind).glob("*.jsonl")))


# one experiment of each view with pictures: drawing takes longest
DRAWN = ("paraphrase", "generation-length", "matching-ratios")


@pytest.fixture(scope="module")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    rows = ({"id": f"p{i}", "prompt": f"w{i} w2", "text": f"w{i} " * 150} for i in range(50))
    write_rows(root / "prompts.jsonl", rows)
    return root


def for_the_toy(experiment: Experiment) -> Experiment:
    """The experiment for a model that writes 8 tokens, and has no classes of words, and no embeddings for Tango."""

    def changed(key: dict[str, Any] | None) -> dict[str, Any] | None:
        own = {name: value for name, value in (key or {}).items() if name not in ("tokens", "word_classes")}
        return key and own | ({"colours": "hash"} if own["rule"] == "tango" else {})

    cells = [cell.model_copy(update={"key": changed(cell.key)}) for cell in experiment.listed]
    short = experiment.builtin.model_copy(update={"min_tokens": 0})
    return experiment.model_copy(update={"builtin": short, "listed": cells})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DRAWN else pytest.mark.soak) for name in experiment_names()]
)
def test_every_experiment_runs_and_is_reported(
    name: str, shared_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = for_the_toy(load_experiment(name))
    if experiment.builtin.reader == NARRATOR_BASE:
        tiny_gguf.as_base(tmp_path, monkeypatch)
    prompts = {experiment.prompt_set(cell, "builtin")[0] for cell in experiment.cells_of("builtin")}
    needed = {"c4", "writingprompts"} & prompts
    store = run_toy(experiment, shared_runs / "rows", files=dict.fromkeys(needed, shared_runs / "prompts.jsonl"))
    made, section = report_toy(experiment, store)
    for cell in made.cells.values():
        if "builtin" in cell.cell.setups:
            assert len(cell.rows) == 2, cell.name
    assert section.quantities
    assert made.complete is False
    assert "incomplete" in to_page(made, section)
    if name not in DRAWN:
        return
    written = write_report(made, section, shared_runs / "reports" / name)
    assert {"report.md", "numbers.csv"} <= {path.name for path in written}
    page = (shared_runs / "reports" / name / "report.md").read_text()
    for path in written:
        assert path.stat().st_size
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            assert f"]({path.name})" in page


def test_a_row_states_all_that_made_it(tmp_path: Path) -> None:
    store = run_toy(small(), tmp_path)
    rows = lines(tmp_path)
    assert len(rows) == 4
    key = run_key(store, TOY, None)
    for row in rows:
        assert row["model_hash"] == "hash of storyteller"
        assert row["tokenizer_hash"] == TOY.tokenizer.fingerprint
        assert row["seed"] in (0, 1)
        assert set(row["versions"]) >= {"dgmark", "torch", "transformers", "numpy"}
        assert row["key_fingerprint"] == (None if row["rule"] is None else key.fingerprint)
        assert row["settings"]["length"] == 8
    made = generate(TOY, "w1 w1", key=key, seed=1, length=8, block_length=8)[0]
    assert [row["text"] for row in rows if row["rule"] == "position" and row["seed"] == 1] == [made.text]


def test_an_interrupted_run_goes_on_and_makes_no_row_twice(tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(what: str, done: int, of: int) -> None:
        if (what, done) == ("marked", 4):
            raise Interrupted

    options = RunOptions(length=8, judge="none", batch_size=2)
    with pytest.raises(Interrupted):
        run_experiment(small(), Store(tmp_path), options, interrupt, load_toy)
    before = lines(tmp_path)
    assert Counter(row["rule"] for row in before) == {None: 5, "position": 4}
    [torn] = [path for path in (tmp_path / "texts").glob("*.jsonl") if '"rule": "position"' in path.read_text()]
    with torn.open("a") as file:
        file.write('{"id": "cut off in the mid')
    told: list[tuple[str, int, int]] = []
    run_toy(small(), tmp_path, told, limit=None, batch_size=2)
    after = lines(tmp_path)
    assert [row for row in after if row in before] == before
    assert len({row["id"] for row in after}) == len(after) == 10
    assert told == [("unmarked", 5, 5), ("marked", 4, 5), ("marked", 5, 5)]
    whole = run_toy(small(), tmp_path / "at once", limit=None, batch_size=5, key=next((tmp_path / "keys").iterdir()))
    assert {row["id"]: row["text"] for row in after} == {row["id"]: row["text"] for row in lines(whole.root)}


def test_a_raised_limit_adds_rows_and_changed_settings_make_new_ones(tmp_path: Path) -> None:
    steps = (
        ("", 1, 2),
        ("", 3, 6),
        ("decoding = { temperature = 0.5 }", 3, 9),
        ("modulus = 3", 3, 12),
        ("decoding = { length = 256, lookahead = 1 }", 3, 12),  # the defaults
    )
    for settings, limit, count in steps:
        cell = MARKED.replace(" }", ", modulus = 3 }") if settings == "modulus = 3" else MARKED + settings
        run_toy(small(cell), tmp_path, limit=limit)
        assert len(lines(tmp_path)) == count


def test_two_experiments_share_their_texts(tmp_path: Path) -> None:
    shared = ["unmarked", "kgw delta 1"]
    run_toy(load_experiment("detectability"), tmp_path, cells=shared)
    made = lines(tmp_path)
    for _ in range(2):
        run_toy(load_experiment("edits"), tmp_path, cells=shared)
        assert lines(tmp_path) == made
        assert len(lines(tmp_path, "attacked")) == 2 * 3 * 4


def test_a_recipes_hash_depends_only_on_what_determines_a_text() -> None:
    plain: dict[str, Any] = {
        "model_hash": "m", "tokenizer_hash": "t", "dtype": "float32", "chat": False, "rule": "kgw",
        "key_fingerprint": "k", "settings": {"length": 8, "cache": "dual"},
    }  # fmt: skip
    for settings in ({"cache": "dual", "length": 8}, {"length": 8, "cache": "dual", "temperature": 1.0}):
        assert recipe_hash(plain | {"settings": settings}) == recipe_hash(plain)
    others: list[dict[str, Any]] = [{name: "another"} for name in plain if name != "settings"]
    others += [{"settings": {"length": 16}}]
    assert len({recipe_hash(plain | change) for change in [{}, *others]}) == 8


def test_a_checkpoint_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = checkpoint_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("no part of it")
    assert checkpoint_hash(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"weightz")
    assert checkpoint_hash(tmp_path) != before


def test_a_cells_key_has_the_secret_of_the_runs_key_and_the_options_of_the_cell() -> None:
    coded = WatermarkKey.generate(TOY, rule="position")
    key = rule_key("position", coded)
    assert (tables_of(coded).spec.code_length, tables_of(key).spec.code_length, key.secret) == (16, 0, coded.secret)
    assert rule_key("position", key) == key
    three = rule_key("position", WatermarkKey.generate(TOY), modulus=3)
    assert (tables_of(three).spec.modulus, three.fingerprint == key.fingerprint) == (3, False)
    pairs = rule_key("bigram", coded)
    assert (pairs.spec.to_fields() | {"nearest": 1, "farthest": 4, "subkeys": 1}) == pairs.spec.to_fields()
    keyless = WatermarkKey.generate(TOY, rule="position", grouping="token-id")
    assert rule_key("position", coded, grouping="token-id").secret is None
    with pytest.raises(SettingsError, match="is keyless"):
        rule_key("bigram", keyless)


def test_several_keys_mark_the_texts_in_turn_and_a_written_out_cell_is_reported(tmp_path: Path) -> None:
    cell = "rule=position,temperature=0.5"
    experiment = small("").model_copy(update={"keys": 3})
    store = run_toy(experiment, tmp_path, cells=[cell], limit=None, length=32)
    rows = sorted(lines(tmp_path), key=lambda row: int(row["seed"]))
    keys = cell_keys(run_key(store, TOY, None), Cell.parse(cell), 3)
    assert len({key.fingerprint for key in keys}) == 3
    for row in rows:
        key = keys[row["seed"] % 3]
        settings: dict[str, Any] = {"temperature": 0.5, "length": 32, "block_length": 32}
        assert row["text"] == generate(TOY, row["prompt"], key=key, seed=row["seed"], **settings)[0].text
    made, section = report_toy(experiment, store)
    assert f"| {cell} | 5 | 5 | complete |" in to_page(made, section)
    scores = made.cells[cell].scores
    own = [Detector(keys[row["seed"] % 3], tokenizer=TOY.tokenizer, phase="start").detect(row["text"]) for row in rows]
    assert scores.p.tolist() == [one.p_value for one in own]


@pytest.mark.parametrize(
    ("experiment", "options", "kind", "problem"),
    [
        (
            small(),
            {"cells": ["nobody"]},
            SettingsError,
            "has no cell 'nobody' in setup builtin; it has 'unmarked', 'marked'",
        ),
        (load_experiment("writing-prompts"), {}, NoTexts, "give --prompts writingprompts=FILE"),
        (
            small('[prompts.long]\ndataset = "long"\ntexts = ["' + "w1 " * 600 + '"]', "long"),
            {},
            PromptTooLong,
            "tokens",
        ),
        (small(KGW + "decoding = { lookahead = 3 }"), {}, SettingsError, "lookahead"),
    ],
)
def test_experiments_that_cannot_be_run_say_why(
    experiment: Experiment, options: dict[str, Any], kind: type[Exception], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=problem):
        run_toy(experiment, tmp_path, **options)


@pytest.mark.parametrize(
    ("experiment", "options", "problem"),
    [
        (load_experiment("writing-prompts"), {}, "give --prompts writingprompts=FILE"),
        (small(KGW + "decoding = { top_p = 3.0 }"), {}, "top_p"),
        (load_experiment("detectability"), {"judge": "no/such folder"}, "no model 'no/such folder'"),
    ],
)
def test_prompts_settings_and_judge_are_checked_before_a_model_is_loaded(
    experiment: Experiment, options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    def load(name: str, **_: Any) -> Any:
        raise AssertionError(f"{name} was loaded")

    with pytest.raises(DgmarkError, match=problem):
        run_experiment(experiment, Store(tmp_path), RunOptions(**options), lambda *_: None, load)


def test_the_time_left_follows_from_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 100.0, 200.0])  # at the start, and whenever a pace is known
    monkeypatch.setattr("dgmark_lab.experiments.run.time.monotonic", lambda: next(times))
    left = TimeLeft({"one": 4.0, "two": 400.0})
    assert left.after("one", 4) == ""  # nothing was made yet
    assert left.after("one", 3) == ", about 11.2 h left"  # 403 more, each 100 s
    assert left.after("two", 5) == ""


def test_a_runs_folder_without_a_key_gets_one_of_i_mod_2_and_keeps_it(tmp_path: Path) -> None:
    made = [run_key(Store(tmp_path / folder), TOY, None) for folder in ("one", "one", "two")]
    assert made[0].secret == made[1].secret != made[2].secret
    assert tables_of(made[0]).spec.code_length == 0


def test_a_report_needs_the_key_of_its_run_and_leaves_out_texts_of_other_settings(tmp_path: Path) -> None:
    store = run_toy(small(), tmp_path)
    with pytest.raises(KeyFileError, match="was run with key"):
        StoredRun.read(small(), store, "builtin", {})
    assert "| marked | 2 | 5 | incomplete |" in to_page(*report_toy(small(), store))
    changed = small(MARKED + "decoding = { temperature = 0.5 }\n")
    assert "| marked | 0 | 5 | not run |" in to_page(*report_toy(changed, store))
