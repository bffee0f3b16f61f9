"""Families of models through the command line: a key, marked text, its detection; the list of models."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dgmark.checkpoint.families import FAMILIES
from dgmark.checkpoint.tokenizer import END_TOKENS
from support import tiny_checkpoints as tiny
from support.cases import cases
from support.command_line import complaint, rows, run

# one of each way to attend and to predict: tests/models holds the networks of the others against theirs
FAMILIES_READ = ("llada", "llada2", "dream", "block-llama", "sdar", "fast-dllm-v2", "a2d-bd3lm", "nemotron")


@pytest.fixture(params=FAMILIES_READ)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tiny checkpoint whose tokenizer has no ends of text, so that no text is short."""
    family: str = request.param
    path = tmp_path / (f"Qwen3-0.6B-diffusion-{family[4:]}-v0.1" if family.startswith("a2d") else family)
    tiny.write(path, family, eos_token_id=None)
    names = (path / "tokenizer.json").read_text()
    for end in END_TOKENS:
        names = names.replace(end, f"<|no {end.strip('<|>[]/')}|>")
    (path / "tokenizer.json").write_text(names)
    return path


@pytest.mark.slow
def test_a_mark_is_made_and_found_with_every_kind_of_family(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_bytes", lambda count: bytes(range(count)))  # the same key in every run
    key, prompts = tmp_path / "key.json", tmp_path / "in.jsonl"
    rule = "position" if folder.name == "sdar" else "bigram"  # its blocks of 4 leave little order to choose
    one_key = ["--subkeys", 1] if rule == "bigram" else []
    keygen = run("keygen", key, "--model", folder, "--rule", rule, *one_key, code=0)
    assert ("warning" in keygen.stderr) == (rule == "position")
    # prompts of several lengths, none a whole number of LLaDA 2's blocks
    prompts.write_text(
        "".join(json.dumps({"id": f"p{i}", "prompt": " ".join(["w1", "w2"] * (3 + i))}) + "\n" for i in (0, 11))
    )
    # hot and in any order, or the tiny random model says the same few words again and again
    temperature = 8 if folder.name == "fast-dllm-v2" else 3  # whose logits are larger
    length = 320 if folder.name == "sdar" else 96
    settings = ["--length", length, "--temperature", temperature, "--strategy", "random", "--dtype", "fp32"]
    marked = run("generate", "--model", folder, "--key", key, "--prompts", prompts, "--json", *settings, code=0)
    made = rows(marked.stdout)
    assert [row["model"] for row in made] == [str(folder)] * 2
    assert not {0, *range(64, 80)} & {token for row in made for token in row["token_ids"]} - {64, 65}
    # ids, as a text leaves out the special tokens that such a model says now and then
    (tmp_path / "marked.jsonl").write_text(
        "".join(json.dumps({"id": row["id"], "token_ids": row["token_ids"]}) + "\n" for row in made)
    )
    found = run("detect", "--key", key, tmp_path / "marked.jsonl", "--format", "jsonl", code=0)
    assert [row["verdict"] for row in rows(found.stdout)] == ["watermarked"] * 2


@pytest.mark.parametrize(("changes", "family", "reason"), cases(__file__, "refused"))
def test_keygen_says_that_generate_would_refuse_the_model(
    tmp_path: Path, changes: dict[str, Any], family: str, reason: str | None
) -> None:
    """The key is made all the same: an engine may mark with it, and detection needs its tokenizer only."""
    tiny.write(tmp_path / "model", family, **changes)
    made = run("keygen", tmp_path / "key.json", "--model", tmp_path / "model", code=0)
    assert (tmp_path / "key.json").exists()
    said = " ".join(made.stderr.split())
    assert ("warning: dgmark generate will refuse this model" in said) == (reason is not None)
    assert ("dgmark generate --key" in said) == (reason is None)
    assert (reason or "") in said
    command = ("generate", "--model", tmp_path / "model", "--key", tmp_path / "key.json", "--length", 8)
    assert (reason or "") in complaint(*command, "--prompt", "w1", code=6 if reason else 0)


@pytest.mark.parametrize("family", ["sdar", "llada"])
def test_keygen_says_how_much_a_text_of_the_model_carries(tmp_path: Path, family: str) -> None:
    tiny.write(tmp_path / "model", family)
    made = run("keygen", tmp_path / "key.json", "--model", tmp_path / "model")
    shown = json.loads(run("key", "show", tmp_path / "key.json", "--json").stdout)["tokens_needed"]
    assert f"words ({shown['most']} tokens) is nearly always found, and one of about " in made.stderr
    assert f"words ({shown['half']} tokens) half of the time" in made.stderr
    assert "warning" not in made.stderr
    assert shown["half"] < shown["most"]
    weakest = run("keygen", tmp_path / "weak.json", "--model", tmp_path / "model", "--expected-match", 0.505)
    assert "A marked text of over 100,000 tokens is nearly always found" in weakest.stderr
    assert "warning: that is a weak mark: use longer texts" in weakest.stderr
    ordered = run("keygen", tmp_path / "ordered.json", "--model", tmp_path / "model", "--rule", "position")
    assert ("blocks of 4 leave little" in ordered.stderr) == (family == "sdar")
    strict = run("key", "show", tmp_path / "key.json", "--fpr", "1e-9").stdout
    assert int(re.findall(r"([\d,]+) tokens\) half", strict)[0].replace(",", "")) > shown["half"]


def test_the_models_are_listed_with_what_they_need() -> None:
    listed = run("models", code=0)
    for family in FAMILIES.values():
        for published in family.published:
            line = next(line for line in listed.stdout.splitlines() if f" {published.hub_id} " in line)
            assert line.startswith(family.name)
            assert f"{published.parameters * 2 / 1e9:.1f}" in line
            assert line.rstrip().endswith(published.licence)


def test_the_list_is_the_same_as_json() -> None:
    content = json.loads(run("models", "--json").stdout)
    assert content["schema"] == 1
    assert content["builtin"] == "storyteller"
    assert [row["name"] for row in content["families"]] == list(FAMILIES)
    llada, dream, llada2, *_ = content["families"]
    assert llada["known_ids"]["126464"]["mask_id"] == 126336
    assert dream["defaults"]["block_length"] == 8
    assert (llada2["block_multiple"], llada2["confidence_source"]) == (32, "sampling")
    assert llada2["published"][0]["parameters"] == 16.26e9
