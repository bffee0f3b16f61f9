"""`dgmark serve` as a process: it answers many at once or refuses them, and SIGTERM loses nothing that it accepted."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dgmark.checkpoint.folder import BUILTIN
from dgmark.detection.detector import Detector
from support.child_processes import alive, children
from support.command_line import complaint, run
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.services import key_folder, wait_for

pytestmark = pytest.mark.slow
MARKED = marked_text(known_key("one", rule="bigram"), 200)
AT_ONCE, CONNECTIONS = 200, 210


def command_of(keys: Path, port: int, *options: str) -> list[str]:
    own = ["--keys", str(keys), "--port", str(port), "--workers", "1"]
    return [sys.executable, "-m", "dgmark", "serve", *own, *options]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    options = f"--queue 50 --connections {CONNECTIONS} --audit".split()
    command = command_of(key_folder(tmp_path, "one"), 0, *options, str(tmp_path / "audit.jsonl"))
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    said = next(filter(None, (re.search(r"running on http://127\.0\.0\.1:(\d+)", line) for line in server.stderr)))
    port = int(said[1])  # the one that it has, not the 0 that was asked for
    wait_for(lambda: server.poll() is not None or _answer(port, "GET", "/readyz") == 200)
    assert server.poll() is None, server.stderr.read()
    yield server, port
    workers = children(server.pid)
    server.kill()
    server.wait()
    wait_for(lambda: not any(map(alive, workers)))  # no worker outlives the service
    server.stderr.close()


def _answer(port: int, method: str, path: str, body: str | None = None) -> int | str:
    """The status of an answer, or the name of what went wrong."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status == 200 and path == "/v1/detect":
            assert json.loads(content)["verdict"] == "watermarked"
        return answer.status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def test_many_at_once_are_answered_or_refused_and_sigterm_loses_none(served: tuple[subprocess.Popen[str], int]) -> None:
    server, port = served
    body = json.dumps({"text": MARKED})
    outcomes: list[int | str] = []

    def ask() -> None:
        outcomes.append(_answer(port, "POST", "/v1/detect", body))

    def start(number: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=ask) for _ in range(number)]
        for thread in threads:
            thread.start()
        return threads

    held = []
    for _ in range(3):
        outcomes.clear()
        for thread in start(AT_ONCE):
            thread.join(60)
        counts = Counter(outcomes)
        assert set(counts) <= {200, 429}
        assert counts[200] >= 1
        assert counts.total() == AT_ONCE
        held.append(psutil.Process(server.pid).memory_info().rss)
    assert held[2] < held[0] + 2**23  # what many leave behind does not add up

    outcomes.clear()
    threads = start(20)
    while not outcomes:  # the others are being checked, wait, or are not accepted yet
        time.sleep(0.001)
    answered = outcomes.copy()
    os.kill(server.pid, signal.SIGTERM)
    for thread in threads:
        thread.join(60)
    # each was answered, or came too late to be accepted: none was begun and dropped
    assert set(outcomes) <= {200, 429, "ConnectionRefusedError", "ConnectionResetError"}
    assert outcomes.count(200) > answered.count(200)
    assert server.wait(30) == 0
    assert server.stderr
    text = server.stderr.read()
    assert "Traceback" not in text
    assert "Finished server process" in text


def test_connections_hold_at_their_edge(served: tuple[subprocess.Popen[str], int]) -> None:
    _, port = served
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS - 1)]
    time.sleep(0.5)  # until all of them are accepted
    assert _answer(port, "GET", "/healthz") == 200
    held.append(socket.create_connection(("127.0.0.1", port)))
    time.sleep(0.1)
    assert _answer(port, "GET", "/healthz") == 503
    for one in held:
        one.close()
    wait_for(lambda: _answer(port, "GET", "/healthz") == 200)


def test_sighup_reads_the_keys_again_and_the_audit_log_follows_its_rotation(
    served: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    server, port = served
    assert children(server.pid)
    audit = tmp_path / "audit.jsonl"
    two = json.dumps({"text": marked_text(known_key("two", rule="bigram"), 200), "key": "two"})
    one = json.dumps({"text": MARKED, "key": "one"})
    assert (_answer(port, "POST", "/v1/detect", one), _answer(port, "POST", "/v1/detect", two)) == (200, 400)
    known_key("two", rule="bigram").save(tmp_path / "keys" / "two.json")
    (tmp_path / "keys" / "one.json").rename(tmp_path / "one.json")
    audit.rename(tmp_path / "audit.old")
    server.send_signal(signal.SIGHUP)
    wait_for(lambda: _answer(port, "POST", "/v1/detect", two) == 200)
    assert _answer(port, "POST", "/v1/detect", one) == 400
    (row,) = map(json.loads, audit.read_text().splitlines())
    assert row["key_fingerprints"] == [known_key("two", rule="bigram").fingerprint]

    (tmp_path / "keys" / "two.json").write_text("{")  # a damaged key changes nothing
    server.send_signal(signal.SIGHUP)
    assert server.stderr
    next(line for line in server.stderr if "the keys stay as they were" in line)
    assert _answer(port, "POST", "/v1/detect", two) == 200


def test_a_port_that_is_taken_is_not_announced(served: tuple[subprocess.Popen[str], int], tmp_path: Path) -> None:
    _, port = served
    command = command_of(tmp_path / "keys", port)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "running on" not in done.stderr
    assert "already in use): choose another --port" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_demo_has_a_key_and_a_model_and_the_bias_is_that_of_marked_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[Any] = []
    monkeypatch.setattr(sys.modules["dgmark_service.serve_command"], "_run", lambda app, *_: apps.append(app))
    assert "warning" not in run("serve", "--demo", "--bias", 1.5, code=0).stderr  # of the mode of its own sample's key
    state = apps[0].state.service
    (model,) = state.settings.models
    assert (list(state.keys), list(state.offers)) == (["demo", "sample"], [BUILTIN])
    assert list(state.offers[BUILTIN].marking.keys) == ["demo"]
    found = Detector(state.keys["sample"]).detect(state.settings.sample)
    assert (found.verdict, state.keys["sample"].name) == ("watermarked", "the sample")
    assert (model.marked["bias"], model.marked["temperature"], "bias" in model.unmarked) == (1.5, 0.5, False)
    assert model.marked["temperature"] < model.unmarked["temperature"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--keys", "."], 5, "holds no key file"),
        (["--keys", ".", "--host", "0.0.0.0"], 2, "--tokens"),
        (["--keys", ".", "--jwks", "none.json"], 4, "none.json"),
        (["--keys", ".", "--key", "k.json"], 2, "exclude each other"),
        (["--key", "none.json"], 5, "none.json"),
        (["--keys", ".", "--demo"], 2, "--demo brings its own key"),
        (["--demo", "--n-batch", "64"], 2, "n_batch (--n-batch) is not an option of a model that is not a GGUF file"),
        (["--keys", ".", "--enforce", "--device", "cpu"], 2, "--device, --enforce: only for writing texts"),
        (["--keys", ".", "--bias", "1"], 2, "--bias: only for writing texts"),
        (["--demo", "--bias", "-1"], 2, "bias -1.0 must be greater than or equal to 0"),
        ([], 2, "give --key KEY or --keys"),
    ],
)
def test_it_says_what_is_wrong_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in complaint("serve", *options, code=code)
