"""Keys and other files that are read again while the service runs: what hangs or cannot be read holds up nothing."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from dgmark.errors import DgmarkError, KeyFileNotFound
from dgmark.watermark.commitment import KeyCommitment
from dgmark_service import state as state_module
from dgmark_service.settings import ServiceSettings
from dgmark_service.state import ServiceState
from dgmark_service.telemetry import AuditLog
from dgmark_service.token_file import TokenFile
from support.known_keys import known_key
from support.services import key_folder, service, wait_for

ONE, TWO = (known_key(name, rule="bigram") for name in ("one", "two"))
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@pytest.fixture
def state(tmp_path: Path) -> ServiceState:
    """A service whose processes are not started, so that a reload only reads."""
    commitments = tmp_path / "commitments"
    commitments.mkdir()
    (commitments / "one.json").write_text(KeyCommitment.of(ONE).model_dump_json())
    return ServiceState(ServiceSettings(key_folder(tmp_path, "one"), commitments=commitments))


@pytest.mark.parametrize("folder", ["keys", "commitments"])
def test_a_pipe_among_the_files_is_refused_and_holds_up_no_reload(
    state: ServiceState, tmp_path: Path, caplog: pytest.LogCaptureFixture, folder: str
) -> None:
    pipe = tmp_path / folder / "pipe.json"
    os.mkfifo(pipe)
    asyncio.run(state.reload())
    assert "the keys stay as they were" in caplog.text
    assert f"{pipe} is not a regular file" in caplog.text
    assert list(state.keys) == ["one"]
    pipe.unlink()
    TWO.save(tmp_path / "keys" / "two.json")
    asyncio.run(state.reload())
    assert list(state.keys) == ["one", "two"]


def test_a_reload_has_its_time_and_holds_up_neither_the_next_nor_the_end(
    state: ServiceState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    never = threading.Event()
    with monkeypatch.context() as slow:
        slow.setattr(state_module, "RELOAD_SECONDS", 0.05)
        slow.setattr(state_module, "_read_keys", lambda _: never.wait())
        asyncio.run(state.reload())
    assert "not read within 0.05 seconds" in caplog.text
    TWO.save(tmp_path / "keys" / "two.json")
    asyncio.run(state.reload())
    assert list(state.keys) == ["one", "two"]
    never.set()


def test_a_check_whose_key_goes_while_it_waits_is_to_be_asked_again(tmp_path: Path) -> None:
    with service(tmp_path, "one", "two") as client, ThreadPoolExecutor(1) as elsewhere:
        asked: dict[str, Any] = {"url": "/v1/detect", "json": {"text": "some words", "key": "two"}}
        state, portal = cast(Any, client.app).state.service, client.portal
        assert portal is not None
        turn = state.workers.turn()
        portal.call(turn.__aenter__)
        waiting = elsewhere.submit(client.post, **asked)
        wait_for(lambda: state.workers.held == 2)
        (tmp_path / "keys" / "two.json").unlink()
        portal.call(state.reload)
        portal.call(turn.__aexit__, None, None, None)
        gone = waiting.result()
        assert (gone.status_code, "'two' is gone: ask again" in gone.json()["detail"]) == (503, True)
        assert client.post(**asked).status_code == 400


def test_nobody_waits_for_a_pipe_in_place_of_another_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(KeyFileNotFound, match="no regular file"):
        TokenFile(tmp_path / "pipe").tokens()
    with pytest.raises(DgmarkError, match="cannot be written"):
        AuditLog(tmp_path / "pipe")
