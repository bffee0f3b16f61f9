"""The commands as a user meets them: outputs, resuming, errors and exit codes."""

import csv
import json
import re
import shlex
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgmark import WatermarkKey
from dgmark.checkpoint.folder import BUILTIN, builtin_folder
from dgmark.cli.demo import SHOWS
from dgmark.detection.statistics.p_values import q_values
from dgmark.watermark.position import tables_of
from support.cases import cases
from support.command_line import complaint, rows, run
from support.fresh_process import run_fresh
from support.known_keys import bound_key, key_file_of, known_key
from support.unmarked_texts import PROSE

LONG = "word " * 1100
SHORT = ["--length", "32", "--block-length", "16"]
key_file = key_file_of(known_key("command line"))


@pytest.fixture(scope="module")
def marked(key_file: Path) -> list[int]:
    """300 token ids that match everywhere, as a perfect mark would."""
    tables = tables_of(WatermarkKey.load(key_file))
    words = np.random.default_rng(0).permutation(np.arange(300, 8000))
    ids: list[int] = []
    for word in words:
        if tables.matching(np.array([word]), np.array([len(ids)]))[0] and len(ids) < 300:
            ids.append(int(word))
    return ids


def test_keygen_prints_the_key_on_stdout_and_what_to_do_next_on_stderr(tmp_path: Path) -> None:
    path = tmp_path / "my key.json"
    made = run("keygen", path)
    assert made.stdout == f"{path}: key {WatermarkKey.load(path).fingerprint} for storyteller\n"
    for step in (f"dgmark generate --key '{path}' --temperature 0.5", f"dgmark detect --key '{path}'", "safe place"):
        assert step in made.stderr
    assert "never overwritten" in run("keygen", path, code=5).stderr


@pytest.mark.parametrize(("options", "fields", "temperature"), cases(__file__, "keygen_makes"))
def test_keygen_makes_a_key_of_the_rule_and_advises_a_temperature(
    tmp_path: Path, options: str, fields: dict[str, Any], temperature: str | None
) -> None:
    made = run("keygen", tmp_path / "key.json", *options.split())
    assert (made.exit_code, re.findall("--temperature (\\S+)", made.stderr)) == (0, [temperature] * bool(temperature))
    assert ("--payload text.txt" in made.stderr) == ("1024" in options)
    shown = json.loads(run("key", "show", tmp_path / "key.json", "--json").stdout)
    assert shown.items() >= fields.items()


def test_a_named_key_names_its_owner_in_the_verdict(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    assert run("keygen", key, "--name", "ACME").exit_code == 0
    assert json.loads(run("key", "show", key, "--json").stdout)["name"] == "ACME"
    assert "The watermark of ACME was not found" in run("detect", "--key", key, PROSE / "willows.txt").stdout


def test_a_key_is_kept_and_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.get_app_dir", lambda name: str(tmp_path / "settings" / name))
    monkeypatch.chdir(tmp_path)
    assert "dgmark detect --key 'the press' text.txt" in run("keygen", "--name", "the press", code=0).stderr
    folder = tmp_path / "settings" / "dgmark" / "keys"
    assert (folder.stat().st_mode & 0o777, (folder / "the press.json").stat().st_mode & 0o777) == (0o700, 0o600)
    key = WatermarkKey.load("the press")
    assert (key.name, key) == ("the press", WatermarkKey.load(folder / "the press.json"))
    assert "of the press was not found" in run("detect", "--key", "the press", PROSE / "willows.txt").stdout
    known_key("here").save("the press")  # a path goes first
    assert WatermarkKey.load("the press") == known_key("here")
    assert "never overwritten" in run("keygen", "--name", "the press", code=5).stderr
    for args, code, said in (
        (["--name", "../a"], 2, "is no name for a file"),
        ([], 2, "give a FILE"),
        (["x/y"], 5, "x/y"),
    ):
        assert said in run("keygen", *args, code=code).stderr


@pytest.mark.parametrize(("args", "code", "message"), cases(__file__, "keygen_refuses"))
def test_keygen_refuses_an_invalid_option(tmp_path: Path, args: str, code: int, message: str) -> None:
    assert message in complaint("keygen", tmp_path / "key.json", *args.split(), code=code)
    assert not (tmp_path / "key.json").exists()


def test_generate_reads_a_prompt_or_rows_from_standard_input() -> None:
    plain = run("generate", "--no-watermark", *SHORT, "--json", stdin="The sea was\n")
    assert rows(plain.stdout)[0]["key_fingerprint"] is None
    assert all(rows(plain.stdout)[0]["trace"]["matched"])
    as_rows = run("generate", "--no-watermark", *SHORT, "--json", "--no-trace", stdin='{"prompt": "The sea was"}\n')
    assert rows(plain.stdout)[0]["text"] == rows(as_rows.stdout)[0]["text"]
    assert "trace" not in rows(as_rows.stdout)[0]
    assert rows(as_rows.stdout)[0]["id"] == "stdin:1"


def test_a_bad_prompt_row_becomes_an_error_row_and_the_others_are_done(tmp_path: Path) -> None:
    prompts = tmp_path / "in.jsonl"
    prompts.write_text('{"id": "a", "prompt": "The sea"}\nnot json\n{"id": "c"}\n{"id": "d", "prompt": ""}\n')
    result = run("generate", "--no-watermark", "--prompts", prompts, *SHORT, "--json", code=0)
    made = rows(result.stdout)
    assert ["error" in row for row in made] == [False, True, True, True]
    assert "not valid JSON" in made[1]["error"]
    assert "errors in 3 of 4 rows" in result.stderr


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        *cases(__file__, "generate_explains"),
        pytest.param(f"--prompt '{LONG[:2000]}'", 2, "shorten the prompt to", id="a long prompt"),
        pytest.param(f"--prompt '{LONG}' --length 1024", 2, "shorten the prompt and ask for fewer", id="both long"),
    ],
)
def test_generate_explains_each_mistake_with_its_exit_code(key_file: Path, line: str, code: int, message: str) -> None:
    args = shlex.split(line)
    given = [] if "--key" in args else ["--key", str(key_file)]
    given += [] if "--prompt" in args else ["--prompt", "The sea"]
    result = run("generate", *given, *args, code=code)
    assert message in result.stderr
    assert result.stdout == ""


def test_generate_takes_either_a_key_or_no_watermark(key_file: Path) -> None:
    assert run("generate", "--prompt", "x").exit_code == 2
    assert run("generate", "--prompt", "x", "--key", key_file, "--no-watermark").exit_code == 2


def test_json_and_the_short_names_mean_the_same_for_each_command(key_file: Path, tmp_path: Path) -> None:
    made, filled, found = (tmp_path / f"{name}.jsonl" for name in ("made", "filled", "found"))
    short = ["-k", key_file, "-m", "storyteller", *SHORT, "--json"]
    written = run("generate", *short, "--prompt", "The sea was", "-o", made)
    holes = ["-k", key_file, "-m", "storyteller", "--json", "The sea [mask:4] was calm."]
    completed = run("infill", *holes, "-o", filled)
    scored = run("detect", "-k", key_file, "--json", "-o", found, made)
    for result, file in ((written, made), (completed, filled), (scored, found)):
        ((printed,), (kept,)) = rows(result.stdout), rows(file.read_text())
        assert (result.exit_code, printed) == (0, {name: kept[name] for name in printed}), result.stderr
    on_stdout = run("detect", "-k", key_file, "--json", made).stdout
    assert on_stdout == run("detect", "-k", key_file, "--format", "jsonl", made).stdout
    assert on_stdout == scored.stdout
    assert run("detect", "-k", key_file, "--json", "-o", found, made).stdout == ""  # it is in the file already


def test_every_format_reports_the_same(key_file: Path, marked: list[int], tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps({"id": "a", "token_ids": marked}) + "\n" + json.dumps({"id": "b", "text": "x"}) + "\n")
    by_lines = rows(run("detect", "--key", key_file, "--format", "jsonl", file).stdout)
    assert [(row["verdict"], row["schema"], len(row["source_sha256"])) for row in by_lines] == [
        ("watermarked", 1, 64), ("uncertain", 1, 64)
    ]  # fmt: skip
    assert json.loads(run("detect", "--key", key_file, "--format", "json", file).stdout) == by_lines
    by_csv = list(csv.DictReader(StringIO(run("detect", "--key", key_file, "--format", "csv", file).stdout)))
    assert [(row["id"], row["verdict"], float(row["p_value"])) for row in by_csv] == [
        (row["id"], row["verdict"], row["p_value"]) for row in by_lines
    ]
    table = run("detect", "--key", key_file, file).stdout
    assert "\na\tfound\t" in table
    assert "\nb\tinconclusive: too short\t" in table


def test_many_texts_share_one_false_discovery_rate(key_file: Path, tmp_path: Path, marked: list[int]) -> None:
    (file := tmp_path / "texts.jsonl").write_text(
        "".join(
            json.dumps({"id": str(n), "token_ids": marked if n < 2 else [*range(300 + n, 380)]}) + "\n"
            for n in range(6)
        )
    )
    many = ["detect", "--key", key_file, "--fdr", "0.01", file]
    found = rows(run(*many, "--json", code=0).stdout)
    assert [row["q_value"] for row in found] == q_values([row["p_value"] for row in found])
    by_csv = list(csv.DictReader(StringIO(run(*many, "--format", "csv").stdout)))
    assert [float(row["q_value"]) for row in by_csv] == [row["q_value"] for row in found]
    table = run(*many)
    assert [", 1 in 1,000 trillion" in line for line in table.stdout.splitlines()[1:7]] == [True] * 2 + [False] * 4
    assert "Of 6 texts at a false-positive rate of 1 in 10,000, up to 0.0006 false alarms" in table.stderr
    assert run(*many, "--out", tmp_path / "out.jsonl").exit_code == 2
    assert run("detect", "--key", key_file, "--fdr", "1", file).exit_code == 2


def test_the_one_of_many_keys_that_marked_the_text_is_named(tmp_path: Path, marked: list[int]) -> None:
    keys = [known_key("command line"), known_key("another"), known_key("third")]
    for number, key in enumerate(keys):
        key.save(tmp_path / f"{number}.json")
    row = json.dumps({"id": "a", "token_ids": marked})
    (found,) = rows(run("detect", "--keys", tmp_path, "--format", "jsonl", stdin=row).stdout)
    assert (found["verdict"], found["key_fingerprint"]) == ("watermarked", keys[0].fingerprint)
    assert found["keys_tested"] == 3
    other = bound_key("narrator's", "narrator")
    other.save(tmp_path / "other.json")
    both = run("detect", "--keys", tmp_path, "--format", "jsonl", stdin=row)
    assert (rows(both.stdout)[0]["keys_tested"], both.stderr) == (4, "")
    tokenizer = builtin_folder("storyteller")
    some = run("detect", "--keys", tmp_path, "--tokenizer", tokenizer, "--format", "jsonl", stdin=row)
    assert rows(some.stdout)[0]["keys_tested"] == 3
    assert f"not tried with {other.fingerprint}: " in some.stderr
    assert run("detect", "--keys", tmp_path, "--key", tmp_path / "0.json", stdin=row).exit_code == 2
    assert run("detect", "--keys", tmp_path, "--only", "0:9", stdin=row).exit_code == 2
    assert run("detect", "--keys", tmp_path / "none", stdin=row).exit_code == 5


def test_rows_may_name_keys_of_a_folder_that_holds_those_of_other_models(tmp_path: Path) -> None:
    (keys := tmp_path / "keys").mkdir()
    known_key("command line").save(keys / "ours.json")
    bound_key("narrator's", "narrator").save(keys / "other.json")
    prompts = tmp_path / "in.jsonl"
    asked = ["generate", "--keys", keys, "--key-column", "of", "--prompts", prompts, *SHORT, "--json"]
    prompts.write_text('{"id": "a", "prompt": "The sea", "of": "ours"}\n')
    assert rows(run(*asked).stdout)[0]["key_fingerprint"] == known_key("command line").fingerprint
    prompts.write_text('{"id": "a", "prompt": "The sea", "of": "other"}\n')
    assert "is bound to tokenizer 'narrator'" in run(*asked, code=5).stderr


def test_only_scores_ranges_at_their_positions(key_file: Path, marked: list[int]) -> None:
    row = json.dumps({"id": "a", "token_ids": marked})
    out = run("detect", "--key", key_file, "--format", "jsonl", "--only", "10:60", "--only", "80:90", stdin=row)
    found = rows(out.stdout)[0]
    assert (found["num_tokens_scored"], found["num_tokens_matched"]) == (60, 60)
    beyond = run("detect", "--key", key_file, "--format", "jsonl", "--only", "0:999", stdin=row)
    assert "the length of what is scored" in beyond.stderr
    assert beyond.exit_code == 2
    assert "START:END" in run("detect", "--key", key_file, "--only", "ten", stdin=row, code=2).stderr


@pytest.mark.parametrize(("verdict", "code"), [("watermarked", 0), ("not_detected", 1), ("uncertain", 3)])
def test_check_reports_the_verdict_by_exit_code(key_file: Path, marked: list[int], verdict: str, code: int) -> None:
    plain = np.random.default_rng(1).permutation(np.arange(300, 8000))[:300].tolist()
    ids = {"watermarked": marked, "not_detected": plain, "uncertain": plain[:5]}[verdict]
    row = json.dumps({"id": "a", "token_ids": ids})
    result = run("detect", "--key", key_file, "--format", "jsonl", "--check", stdin=row)
    assert rows(result.stdout)[0]["verdict"] == verdict
    assert result.exit_code == code
    assert run("detect", "--key", key_file, "--format", "jsonl", stdin=row).exit_code == 0


@pytest.mark.parametrize(("args", "text", "code", "message"), cases(__file__, "detect_explains"))
def test_detect_explains_each_mistake_with_its_exit_code(
    key_file: Path, tmp_path: Path, args: str, text: str, code: int, message: str
) -> None:
    (tmp_path / "text.txt").write_text(text)
    given = (key_file if arg == "KEY" else arg for arg in args.split())
    assert message in run("detect", *given, tmp_path / "text.txt", code=code).stderr


def test_an_open_key_file_is_refused_and_one_for_a_group_warned_of(key_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "key.json"
    copy.write_bytes(key_file.read_bytes())
    for mode, options, code, said in (
        (0o644, [], 5, "chmod 600"),
        (0o644, ["--allow-open-key"], 0, "warning"),
        (0o640, [], 0, "warning"),
    ):
        copy.chmod(mode)
        assert said in run("detect", "--key", copy, *options, stdin="Some text.", code=code).stderr


def test_the_keyless_scheme_says_that_it_has_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    made = run("keygen", path, "--grouping", "token-id")
    assert "no secret" in made.stderr
    row = rows(run("detect", "--key", path, "--format", "jsonl", stdin="A text to score.").stdout)[0]
    assert row["guaranteed"] is False


def test_a_command_that_needs_an_extra_says_how_to_install_it() -> None:
    commands = [
        ["generate", "--no-watermark", "--prompt", "x"],
        ["generate", "--no-watermark", "--prompts", "in.parquet", "--out", "out.parquet"],
        ["infill", "--no-watermark", "x [mask:4]"],
        ["demo"],
    ]
    told = run_fresh(
        "import sys; sys.modules['torch'] = None  # as if it were not installed\n"
        "from typer.testing import CliRunner\n"
        "from dgmark.cli import app\n"
        f"for command in {commands!r}:\n"
        "    result = CliRunner().invoke(app, command)\n"
        "    print(result.exit_code, result.stderr.strip())\n"
    ).splitlines()
    assert len(told) == len(commands)
    for line in told:
        assert re.fullmatch(r"6 error: .+ needs .+: run `pip install '\.\[generate\]'` .+", line)


@pytest.mark.slow
def test_the_demo_detects_the_mark_after_the_cut_without_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = {"DGMARK_CACHE": tmp_path, "DGMARK_BASE": tmp_path / "missing.whl", "COLUMNS": 100}
    for name, value in nowhere.items():
        monkeypatch.setenv(name, str(value))
    bound_key("demo", BUILTIN, subkeys=256).save(tmp_path / "demo.json")
    done = run("demo", "--key", tmp_path / "demo.json", code=0)
    assert "Where have you been" in done.stdout
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", done.stdout).split())
    assert "temperature 1.0, " in said
    assert "temperature 0.5, " in said
    assert done.stdout.count("Watermark found: ") == 2
    assert done.stdout.count("No watermark found: ") == 1
    # of the text below the two that stand side by side
    assert "pairs match, which happens without the key at most once in " in said
    # the narrator needs its base: where it cannot be had, the demo shows the storyteller
    assert "missing.whl, which is not a file" in run("demo", "--model", "narrator", code=6).stderr
    for settings in (SHOWS[BUILTIN].unmarked, *SHOWS[BUILTIN].marked.values()):
        monkeypatch.setitem(settings, "length", 32)
    assert "The demo shows the storyteller, a smaller model: " in run("demo", "--prompt", "The king", code=0).stderr
    assert "the demo runs a built-in model" in run("demo", "--model", "other", code=2).stderr


def test_detect_prefers_the_text_of_a_row_unless_told_otherwise(key_file: Path, marked: list[int]) -> None:
    row = json.dumps({"id": "a", "text": "Only a few words.", "token_ids": marked})
    for more, verdict in (([], "uncertain"), (["--ids"], "watermarked")):
        (found,) = rows(run("detect", "--key", key_file, "--format", "jsonl", *more, stdin=row).stdout)
        assert found["verdict"] == verdict


# ---- keys through pipes ----


def test_a_key_goes_from_standard_output_to_standard_input(tmp_path: Path) -> None:
    made = run("keygen", "-", code=0)
    fingerprint = json.loads(made.stdout)["fingerprint"]
    assert made.stderr.startswith(f"-: key {fingerprint} for storyteller")
    shown = run("key", "show", "-", "--json", stdin=made.stdout_bytes)
    assert json.loads(shown.stdout)["key_fingerprint"] == fingerprint
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a king.")
    found = run("detect", "--key", "-", "--format", "json", text, stdin=made.stdout_bytes)
    assert json.loads(found.stdout)[0]["key_fingerprint"] == fingerprint


@pytest.mark.parametrize("arguments", cases(__file__, "standard_input_twice"))
def test_standard_input_is_not_read_twice(arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("Once upon a time there was a king.")
    done = run(*arguments.split(), stdin=run("keygen", "-").stdout_bytes)
    assert done.exit_code in (2, 4)
    assert "standard input was read for a key already: give a file for one of the two" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("content", [b"", b"Once upon a time"])
def test_what_is_no_key_on_standard_input_is_refused(content: bytes) -> None:
    assert "- is not a key file" in run("key", "show", "-", stdin=content, code=5).stderr
