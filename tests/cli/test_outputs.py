"""`--out` of every command: other files left alone, full disks, inputs that changed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dgmark.checkpoint.folder import BUILTIN, builtin_folder
from dgmark.report.signing import SigningKey
from dgmark.watermark.commitment import KeyCommitment
from dgmark_service.token_file import TokenFile
from support.command_line import run
from support.known_keys import key_file_of, known_key

TEXT = "The old house stood at the end of the lane, and nobody had lived there for a long time."
COMMANDS = ["generate", "infill", "detect"]
key_file = key_file_of(known_key("outputs"))


def inputs(path: Path, number: int) -> Path:
    """Rows that every command can read."""
    made = ({"id": f"row {n}", "prompt": "Once upon a time", "text": f"{TEXT} [mask:4] {n}"} for n in range(number))
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def command(name: str, source: object, out: object, key_file: Path) -> list[object]:
    """A command that makes rows of a file."""
    small = ["--length", 8, "--block-length", 8]
    return {
        "generate": ["generate", "--key", key_file, "--batch-size", 1, *small, "--prompts", source, "--out", out],
        "infill": ["infill", "--key", key_file, "--block-length", 4, "--texts", source, "--out", out],
        "detect": ["detect", "--key", key_file, source, "--out", out],
    }[name]


def finished(arguments: list[object], **options: Any) -> tuple[int, str]:
    """Exit code and stderr of the command in a process of its own."""
    # -B: a limit on the size of files would cut the bytecode of modules, too
    line = [sys.executable, "-B", "-m", "dgmark", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, **options)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


# --- files that are not ours


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dash_is_no_file(name: str, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run(*command(name, inputs(tmp_path / "in.jsonl", 1), "-", key_file))
    assert (refused.exit_code, (tmp_path / "-").exists()) == (2, False), refused.output
    assert "leave --out out" in refused.output


@pytest.mark.parametrize("content", ['{"id": "7", "note": "the only copy of this"}', "Dear diary,\nit rained.\n"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_not_ours_stays_as_it_is(name: str, content: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    out.write_text(content)
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, out.read_text()) == (4, content), refused.output
    assert "choose another --out" in refused.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_is_no_output(name: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "link.jsonl"
    out.symlink_to(source)
    before = source.read_bytes()
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, source.read_bytes()) == (2, before), refused.output
    assert "which is read" in refused.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_standard_input_is_no_output(name: str, key_file: Path, tmp_path: Path) -> None:
    source = inputs(tmp_path / "in.jsonl", 2)
    before = source.read_bytes()
    with open(source) as given:
        code, said = finished(command(name, "-", source, key_file), stdin=given)
    assert (code, source.read_bytes()) == (2, before), said
    assert "the same file as standard input" in " ".join(said.split())


# --- inputs that changed


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_that_changed_under_its_id_is_refused(name: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    assert run(*command(name, source, out, key_file)).exit_code == 0
    before = out.read_bytes()
    source.write_text(source.read_text().replace("old house", "new house").replace("Once", "Twice"))
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, out.read_bytes()) == (4, before)
    assert "holds a row 'row 0' made from a different" in refused.stderr


# --- files that nothing makes again, and files that are read


def kept() -> dict[str, str]:
    """Contents of files that nothing makes again."""
    with TemporaryDirectory() as folder:
        key, signing, tokens = (Path(folder, name) for name in ("key.json", "signing.json", "tokens.json"))
        known_key("outputs").save(key)
        SigningKey.generate().save(signing)
        TokenFile(tokens).add("somebody", ["detect"])
        watermark, signer, access = key.read_text(), signing.read_text(), tokens.read_text()
    fields = json.loads(watermark)
    public = SigningKey.generate().to_jwks()["keys"]
    return {
        "watermark key": watermark,
        "half a watermark key": watermark[: watermark.index('"secret"') + 20],
        "list of watermark keys": json.dumps([fields, fields]),
        "watermark keys as lines": f"{json.dumps(fields)}\n" * 2,
        "watermark keys as a table": f'"key_id","secret"\n"{fields["key_id"]}","{fields["secret"]}"\n',
        "watermark key far from the start": " " * (2**20 - 3) + json.dumps({"mine": {"secret": fields["secret"]}}),
        "signing key": signer,
        "half a signing key": signer[: signer.index('"d"') + 10],
        "key set": json.dumps({"keys": [*public, json.loads(signer)]}),
        "commitment": KeyCommitment.of(known_key("outputs")).model_dump_json(indent=2),
        "tokens": access,
        "half the tokens": access[: len(access) // 2],
    }


KEPT = kept()


@pytest.mark.parametrize("option", ["--report", "--extract", "--out"])
@pytest.mark.parametrize("kind", KEPT)
def test_what_nothing_makes_again_is_never_overwritten(option: str, kind: str, key_file: Path, tmp_path: Path) -> None:
    """Whether the file is the key in use, or lies there under the name of an output."""
    out, text = tmp_path / "key.json", tmp_path / "text.txt"
    out.write_text(KEPT[kind])
    out.chmod(0o600)
    text.write_text("A text of some words, and not of many.")
    before = out.read_bytes()
    commands = [["--key", key_file], ["--key", out]]
    if option != "--out":
        SigningKey.generate().save(tmp_path / "sign.json")
        commands.append(["--key", key_file, "--sign", tmp_path / "sign.json", "--report", tmp_path / "r.html"])
    for given in commands:
        refused = run("detect", *given, option, out, text)
        assert refused.exit_code in (2, 4, 5), refused.stderr
        assert (out.read_bytes(), refused.stdout) == (before, "")
    assert not (tmp_path / "r.html").exists()


def test_the_audit_log_is_no_file_that_is_kept(key_file: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text(KEPT["tokens"])
    before = (tmp_path / "tokens.json").read_bytes()
    refused = run("serve", "--keys", key_file.parent, "--audit", tmp_path / "tokens.json", code=2)
    assert "never overwritten" in refused.stderr
    assert (tmp_path / "tokens.json").read_bytes() == before


@pytest.mark.parametrize("option", ["--report", "--extract"])
def test_a_file_that_the_command_reads_is_no_output(option: str, key_file: Path, tmp_path: Path) -> None:
    text, tokenizer = tmp_path / "text.txt", tmp_path / "tokenizer.json"
    text.write_text("A text of some words, and not of many.")
    shutil.copy(builtin_folder(BUILTIN) / "tokenizer.json", tokenizer)
    for read in (tokenizer, tokenizer.with_name("link.json")):
        if not read.exists():
            read.symlink_to(tokenizer)
        refused = run("detect", "--key", key_file, "--tokenizer", tokenizer, option, read, text, code=2)
        assert "which is read" in refused.stderr
    assert tokenizer.read_bytes() == (builtin_folder(BUILTIN) / "tokenizer.json").read_bytes()
