"""Attempts on a running service: strangers who send what costs much, long texts of another, reloads, lost processes."""

import json
import os
import random
import re
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from soak.bench import HANGS, TEXT, Bench

# about 1,200 words
LONG = "the boat went down to the quiet river and then they saw what was left of the old house near it. " * 60
SECONDS = float(os.environ.get("SOAK_STRANGERS", "60"))  # 600 before a release
# what costs a service much for each byte that is sent; all of it strangers may send
JSON, FORM = "application/json", "multipart/form-data; boundary=x"
COSTLY: tuple[tuple[str, bytes], ...] = (
    *((JSON, json.dumps({"text": sign * 300_000, "spans": True}).encode()) for sign in ("[", "\u0301", "<!--", "a\n")),
    (JSON, b'{"token_ids": [' + b"[]," * 500_000 + b"[]]}"),
    (JSON, b"{" + b",".join(b'"f%d": 1' % number for number in range(100_000)) + b"}"),
    *(
        (
            FORM,
            b'--x\r\ncontent-disposition: form-data; name="document"; filename="a.%s"\r\n\r\n' % kind
            + body
            + b"\r\n--x--\r\n",
        )
        for kind, body in (
            (b"html", b"<" * 1_000_000),
            (b"html", b"<!--" * 500_000),
            (b"rtf", b"{\\rtf" + b"{" * 500_000),
        )
    ),
    (f"{FORM}; charset=punycode", b"a" * 300_000),
)


class Served(NamedTuple):
    """A running `dgmark serve`: its process, its port, and its folder of keys."""

    pid: int
    port: int
    keys: Path
    token: str = ""
    rival: str = ""

    def ask(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None, seconds: float = HANGS
    ) -> bytes:
        """The content of an answer with status 200; others are errors."""
        address = f"http://127.0.0.1:{self.port}{path}"
        given = {"content-type": "application/json", "authorization": f"Bearer {self.token}", **(headers or {})}
        request = urllib.request.Request(address, body, {name: one for name, one in given.items() if one})
        with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310
            return bytes(answer.read())


@pytest.fixture
def served(bench: Bench, tmp_path: Path) -> Iterator[Served]:
    """A service with one key."""
    shutil.copy(bench.key, tmp_path)
    yield from _served(bench, tmp_path, ["--workers", 1])


def _served(bench: Bench, keys: Path, options: list[object], *tokens: str) -> Iterator[Served]:
    """A service with these keys, which SIGTERM ends; it reports what holds its event loop for over 100 ms."""
    process = bench.start(["serve", "--keys", keys, "--port", 0, *options], PYTHONASYNCIODEBUG="1")
    assert process.stdout is not None
    said = b""
    while (port := re.search(rb"running on http://127\.0\.0\.1:(\d+)", said)) is None:
        said += os.read(process.stdout.fileno(), 4096) or pytest.fail(f"no service started: {said!r}")
    one, ready = Served(process.pid, int(port[1]), keys, *tokens), False
    while not ready:
        assert process.poll() is None, "the service ended before it was ready"
        with suppress(OSError):
            ready = bool(one.ask("/readyz"))
        time.sleep(0.2)
    said_later = list[bytes]()
    reader = threading.Thread(target=lambda: said_later.extend(process.stdout or ()))
    reader.start()
    yield one
    process.terminate()
    reader.join(HANGS)
    held = [float(seconds) for seconds in re.findall(rb"took (\d+\.\d+) seconds", b"".join(said_later))]
    print(f"the event loop was held for over 100 ms {len(held)} times, the longest {max(held, default=0):.2f} s")
    bench.end(process, 0)


@pytest.fixture
def public(bench: Bench, tmp_path: Path) -> Iterator[Served]:
    """A service with a model for everybody, and tokens for two."""
    shutil.copy(bench.key, tmp_path)
    tokens = list[str]()
    for name in ("holder", "rival"):
        scopes = [word for scope in ("detect:full", "generate", "admin") for word in ("--scope", scope)]
        made = bench.run("access", "keygen", tmp_path / "tokens", name, *scopes)
        tokens += [word.decode() for word in made.output.split() if word.startswith(b"dgm_")]
    bench.run("keygen", tmp_path / "main.json", "--model", "storyteller")
    options = ["--tokens", tmp_path / "tokens", "--public", "--public-rate", "100000 per minute", "--workers", 2]
    models = ["--model", "storyteller", "--generate-key", "main"]
    yield from _served(bench, tmp_path, [*options, *models], *tokens)


@pytest.mark.parametrize("killed", [False, True])
def test_others_do_not_stop_a_token_holder(public: Served, killed: bool) -> None:
    """Strangers send what is costly, and a rival has long texts marked: a holder's checks and texts go on.

    Also if the process that writes is lost once; and memory does not grow.
    """
    over, checks, texts, statuses = threading.Event(), list[float](), list[float](), Counter[int]()
    marked = list[int]()

    def strangers(seed: int) -> None:
        rng = random.Random(seed)
        while not over.is_set():
            kind, body = rng.choice(COSTLY)
            address = f"198.51.100.{rng.randrange(250)}"  # as a proxy on this machine says
            headers = {"content-type": kind, "authorization": "", "x-forwarded-for": address}
            try:
                public.ask("/v1/detect", body, headers, seconds=5)
                statuses[200] += 1
            except urllib.error.HTTPError as error:
                statuses[error.code] += 1
            except OSError:  # closed before the whole body was sent, or not answered in time
                statuses[0] += 1

    def holder(times: list[float], path: str, body: bytes) -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                public.ask(path, body)
                times.append(time.monotonic() - began)
            except urllib.error.HTTPError as error:
                if not killed or error.code != 503:
                    raise
                time.sleep(1)  # while the model is loaded again

    def rival(number: int) -> None:
        headers = {"authorization": f"Bearer {public.rival}"}
        long = json.dumps({"text": f"{number} {LONG}", "share": 0.5}).encode()
        while not over.is_set():
            with suppress(OSError):  # also when the service ends
                public.ask("/v1/infill", long, headers, seconds=1000)
                marked.append(number)

    check, text = json.dumps({"text": TEXT}).encode(), json.dumps({"prompt": "Once", "max_tokens": 64}).encode()
    work = [(holder, (checks, "/v1/detect", check)), (holder, (texts, "/v1/generate", text))]
    threads = [threading.Thread(target=one, args=given) for one, given in work]
    threads += [threading.Thread(target=strangers, args=(seed,)) for seed in range(8)]
    os.nice(5)  # as if the clients were on another machine, whose processor the service does not share
    rivals = [threading.Thread(target=rival, args=(number,), daemon=True) for number in range(4)]
    for thread in (*threads, *rivals):
        thread.start()
    time.sleep(SECONDS / 2)
    server = psutil.Process(public.pid)
    if killed:
        max(server.children(), key=lambda child: child.memory_info().rss).kill()  # the one that has the model
    before = server.memory_info().rss
    time.sleep(SECONDS / 2)
    grown = server.memory_info().rss - before
    (lost,) = re.findall(rb"^dgmark_workers_lost_total (\d+)", public.ask("/metrics"), re.MULTILINE)
    over.set()
    for thread in threads:
        thread.join(HANGS)
    ranked = sorted(checks)
    print(f"checks: {len(checks)}, p99 {ranked[int(0.99 * len(ranked))]:.2f} s, longest {ranked[-1]:.2f} s")
    print(
        f"texts: {len(texts)}, longest {max(texts, default=0):.1f} s; {len(marked)} long texts marked; "
        f"strangers: {dict(statuses)}; {grown:,} bytes more; {int(lost)} processes lost"
    )
    assert checks
    assert texts
    assert set(statuses) <= {0, 200, 400, 413, 422, 429, 503}
    assert grown < 200 * 2**20


def test_reload(served: Served, bench: Bench, rng: random.Random) -> None:
    """Keys come and go, are damaged or pipes, while texts are checked: no check is refused, and SIGTERM ends it."""
    body = json.dumps({"text": TEXT}).encode()
    over, problems = threading.Event(), list[str]()

    def check() -> None:
        while not over.is_set():
            try:
                answer = json.loads(served.ask("/v1/detect", body))
                problems.extend([] if answer["verdict"] == "watermarked" else [str(answer)])
            except OSError as error:
                problems.append(repr(error))

    clients = [threading.Thread(target=check) for _ in range(4)]
    for client in clients:
        client.start()
    changed = served.keys / "changed.json"
    for kind in [*(rng.choice(["none", "another key", "damaged", "pipe"]) for _ in range(8)), "pipe"]:
        changed.unlink(missing_ok=True)
        match kind:
            case "another key":
                bench.run("keygen", changed)
            case "damaged":
                changed.write_text("{")
            case "pipe":
                os.mkfifo(changed)
        os.kill(served.pid, signal.SIGHUP)
        time.sleep(rng.uniform(0.05, 2))
    over.set()
    for client in clients:
        client.join(HANGS)
    assert not problems
