"""`dgmark-lab tune`, and `generate --settings`: from prompts to a settings file to marked text."""

import json
from pathlib import Path

import pytest

from dgmark import WatermarkKey
from dgmark.decode.settings_file import read_settings_file
from dgmark_lab import trials
from support.command_line import rows, run
from support.known_keys import known_key

PROMPTS = "".join(
    json.dumps({"id": f"p{number}", "prompt": text}) + "\n"
    for number, text in enumerate(
        ["Once upon a time", "The old king", "In a deep forest", "There was a girl", "A ship"]
    )
)
SMALL = ("--texts", 4, "--tokens", 16, "--block-length", 8, "--alpha", 1, "--farthest", 8)


def test_the_settings_that_are_found_are_written_and_taken_by_generate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "TEMPERATURES", (1.0, 0.7))
    prompts, out, plot = tmp_path / "prompts.jsonl", tmp_path / "found.json", tmp_path / "found.png"
    prompts.write_text(PROMPTS)
    done = run("tune", "--prompts", prompts, *SMALL, "--out", out, "--plot", plot, "--batch-size", 4, "--json")
    assert done.exit_code == 0, done.stderr
    found = read_settings_file(out)
    said = json.loads(done.stdout)
    assert said["settings"] == found.model_dump()
    assert said["candidates"][0]["candidate"].startswith(f"bigram 1-8, T {found.decoding['temperature']}")
    assert found.model == "storyteller"
    assert found.rule == "bigram"
    assert found.decoding.keys() == {"block_length", "temperature", "top_p", "alpha"}
    assert (found.decoding["alpha"], found.measured["farthest"]) == (1.0, 8)
    assert found.decoding["block_length"] == 8
    assert found.decoding["temperature"] in (1.0, 0.7)
    assert found.measured["texts"] == 4
    names = ("texts", "diversity", "perplexity", "bits", "found")
    assert [found.measured[name] for name in names] == pytest.approx(
        [said["candidates"][0][name] for name in names], abs=1e-4
    )
    assert plot.read_bytes().startswith(b"\x89PNG")
    match = found.measured["match"]
    assert isinstance(match, float)
    assert 0.5 < match < 1
    assert f"dgmark keygen key.json --rule bigram --farthest 8 --expected-match {match:.2f}" in done.stderr
    assert found.measured["meets_goal"] or "no settings meet the goal" in done.stderr
    made = out.with_suffix(".trials.jsonl").read_bytes()
    written = {row["candidate"] for row in rows(made.decode())}
    assert len(written) == 3 * 2 * 2  # temperatures with and without top-p: marked, redrawn, with fixed noise
    assert found.measured["reference"] in written

    again = run("tune", "--prompts", prompts, *SMALL, "--out", out)
    assert again.exit_code == 0
    assert out.with_suffix(".trials.jsonl").read_bytes() == made
    assert read_settings_file(out) == found
    assert "bigram" in again.stdout

    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    WatermarkKey.generate(farthest=8).save(right)
    known_key("wrong").save(wrong)
    prompt = ("--prompt", "Once upon", "--length", 8, "--json")
    (row,) = rows(run("generate", "--key", right, "--settings", out, *prompt).stdout)
    assert row["settings"]["temperature"] == found.decoding["temperature"]
    assert row["settings"]["block_length"] == 8
    (row,) = rows(run("generate", "--key", right, "--settings", out, *prompt, "--temperature", 0.25).stdout)
    assert row["settings"]["temperature"] == 0.25
    refused = run("generate", "--key", wrong, "--settings", out, *prompt)
    assert refused.exit_code == 2
    assert "a key of rule bigram, and the key is of rule position" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("prompts", "arguments", "code", "message"),
    [
        (PROMPTS, ("--model", "some/model"), 2, "give --judge"),
        (PROMPTS, ("--temperature", 0), 2, "no diversity to compare"),
        (
            PROMPTS,
            ("--strategy", "random", "--rule", "position", "--min-relative-reward", 0.1),
            2,
            "has nothing to compare",
        ),
        (PROMPTS, ("--lookahead", 3), 2, "lookahead means nothing under rule bigram"),
        (PROMPTS, ("--texts", 3), 2, "greater than or equal to 4"),
        ("".join(PROMPTS.splitlines(keepends=True)[:3]), (), 4, "has 3 prompts"),
        ('{"id": "a", "text": "no prompt"}\n', (), 4, 'has no "prompt"'),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    tmp_path: Path, prompts: str, arguments: tuple[object, ...], code: int, message: str
) -> None:
    (tmp_path / "prompts.jsonl").write_text(prompts)
    done = run("tune", "--prompts", tmp_path / "prompts.jsonl", "--out", tmp_path / "found.json", *arguments)
    assert done.exit_code == code
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "found.json").exists()


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    other = tmp_path / "thesis.json"
    other.write_text("{}")
    assert run("tune", "--prompts", tmp_path / "prompts.jsonl", "--out", other).exit_code == 2
    assert other.read_text() == "{}"
