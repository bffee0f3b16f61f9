"""A language model that reads along, in the commands and in reports; and a key that is checked on unmarked texts."""

import json
import re
from pathlib import Path

import pytest

from dgmark import LanguageModel
from support.cases import cases
from support.command_line import complaint, rows, run
from support.known_keys import key_file_of, known_key
from support.marked_texts import marked_text
from support.stub_servers import ask_again_soon

KEY = known_key("surprisal options", rule="bigram")
key = key_file_of(KEY)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(marked_text(KEY, 200))
    return tmp_path / "text.txt"


def test_detect_says_which_model_has_read_the_text(key: Path, text: Path, tmp_path: Path) -> None:
    options = ("detect", "--key", key, "--surprisal-model", "builtin")
    (row,) = json.loads(run(*options, "--format", "json", text).stdout)
    fingerprint = LanguageModel().fingerprint
    weights = row["figures"]["weights"]
    assert (row["test"], weights["model"], weights["fingerprint"]) == ("weighted", "builtin", fingerprint)
    card = " ".join(run(*options, "--verbose", text).stdout.split())
    assert f"builtin ({fingerprint})" in card
    assert "as the language model builtin sees the text" in card
    assert run(*options, "--out", tmp_path / "rows.jsonl", text).exit_code == 0
    counted = run("detect", "--key", key, "--out", tmp_path / "rows.jsonl", text, code=4)
    assert "other" in counted.stderr  # rows of both tests never mix
    assert rows((tmp_path / "rows.jsonl").read_text())[0]["test"] == "weighted"


def test_a_terminal_shows_which_tokens_match(key: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("detect", "--key", key, "--surprisal-model", "builtin", "--show", text)
    plain = run(*options).stdout
    assert ("\x1b" in plain, "underlined" in plain) == (False, False)
    assert "[[marked 1: " in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = run(*options).stdout
    assert "Tokens that match are underlined" in coloured
    for style in ("2;4;32", "1;4;32", "32"):  # random tokens are sure or a surprise
        assert f"\x1b[{style}m" in coloured
    bare = re.sub("\x1b\\[[0-9;]*m", "", coloured)
    assert plain[plain.index("[[marked 1") :] == bare[bare.index("[[marked 1") :]


def test_signed_reports_name_the_model_and_its_fingerprint(key: Path, text: Path, tmp_path: Path) -> None:
    signing, jwks, fingerprint = tmp_path / "signing.json", tmp_path / "jwks.json", LanguageModel().fingerprint
    run("report", "keygen", signing)
    jwks.write_text(run("report", "jwks", signing).stdout)
    page, document = tmp_path / "report.html", tmp_path / "report.json"
    options = ("--report", page, "--report", document, "--sign", signing, "--surprisal-model", "builtin", "--public")
    assert run("detect", "--key", key, *options, text).exit_code == 0
    method = json.loads(document.read_text())["method"]
    expected = ("weighted", "builtin", fingerprint)
    assert (method["test"], method["language_model"], method["language_model_fingerprint"]) == expected
    assert fingerprint in page.read_text()
    for report in (page, document):
        assert run("report", "verify", report, "--jwks", jwks).exit_code == 0
        report.write_bytes(report.read_bytes().replace(fingerprint.encode(), b"0" * 16))
        assert run("report", "verify", report, "--jwks", jwks).exit_code == 4


@pytest.mark.parametrize(("model", "code", "reason"), cases(__file__, "unreadable"))
def test_a_model_that_cannot_read_is_an_error(
    key: Path, text: Path, model: str, code: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_again_soon(monkeypatch)
    assert reason in complaint("detect", "--key", key, "--surprisal-model", model, text, code=code)


@pytest.mark.parametrize(("options", "reason"), cases(__file__, "contexts"))
def test_a_context_belongs_to_a_model_that_is_computed_here(key: Path, text: Path, options: str, reason: str) -> None:
    assert reason in complaint("detect", "--key", key, *options.split(), text, code=2)


def test_a_context_may_be_chosen(key: Path, text: Path) -> None:
    found = [
        json.loads(
            run("detect", "--key", key, "--surprisal-model", "builtin", *options, "--format", "json", text).stdout
        )[0]
        for options in ([], ["--context", "64"])
    ]
    assert found[0]["verdict"] == found[1]["verdict"] == "watermarked"
    assert found[0]["figures"]["weights"]["fingerprint"] != found[1]["figures"]["weights"]["fingerprint"]


def test_a_key_without_weights_is_refused_before_a_model_is_loaded(tmp_path: Path, text: Path) -> None:
    known_key("groups").save(tmp_path / "position.json")
    refused = run("detect", "--key", tmp_path / "position.json", "--surprisal-model", "no-such-model", text, code=2)
    assert "has no weighted test" in " ".join(refused.stderr.split())


def test_a_key_is_checked_on_unmarked_texts(key: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    texts = [marked_text(known_key(f"another {n}", rule="bigram"), 60, seed=n) for n in range(12)]
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
    corpus.write_text("\n".join([*lines, "no JSON"]) + "\n")
    fields = json.loads(run("key", "check", key, "--texts", corpus, "--json").stdout)
    assert (fields["texts"], fields["unusable"], fields["key_fingerprint"]) == (12, 1, KEY.fingerprint)
    assert [share["level"] for share in fields["shares"]] == [0.1, 0.01, 1e-3, 1e-4]
    shown = run("key", "check", key, "--texts", corpus, "--surprisal-model", "builtin", code=0)
    assert "12 texts. Share with a p-value of at most" in shown.stdout
    assert "the key can stay" in shown.stdout
    assert "corpus.jsonl:13: not valid JSON" in shown.stderr


def test_texts_that_the_key_has_marked_are_found_by_its_check(key: Path, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(marked_text(KEY, 80, seed=number))
    found = run("key", "check", key, *(one for n in range(4) for one in ("--texts", tmp_path / f"{n}.txt")), code=1)
    assert "draw another key" in found.stdout
    twice = run("key", "check", key, *["--texts", tmp_path / "0.txt"] * 2, "--json")
    assert json.loads(twice.stdout)["texts"] == 1
    missing = run("key", "check", key, "--texts", tmp_path / "none.txt", code=4)
    assert "none.txt: cannot be read: No such file" in missing.stderr
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert run("key", "check", key, "--texts", empty).exit_code == 4
