"""Services in this process, with one worker process each, and another one if they write texts."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from dgmark.models.load import load_model
from dgmark.models.loaded import LoadedModel
from dgmark.watermark.key import WatermarkKey
from dgmark_service.app import create_app
from dgmark_service.settings import ModelSource, ServiceSettings
from dgmark_service.token_file import TokenFile
from support import tiny_checkpoints
from support.known_keys import bound_key, known_key


def key_folder(folder: Path, *names: str) -> Path:
    """A folder with the known keys of these names."""
    keys = folder / "keys"
    keys.mkdir()
    for name in names:
        known_key(name, rule="bigram").save(keys / f"{name}.json")
    return keys


@contextmanager
def service(folder: Path, *names: str, address: str = "127.0.0.1", **settings: Any) -> Iterator[TestClient]:
    """A client of a running service with these keys."""
    app = create_app(ServiceSettings(keys=key_folder(folder, *names), workers=1, **settings))
    with TestClient(app, "http://localhost", raise_server_exceptions=False, client=(address, 50000)) as client:
        yield client


@contextmanager
def listening(app: FastAPI, **config: Any) -> Iterator[str]:
    """The address of an application that serves in a thread of this process, with these settings of uvicorn."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", **config))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(20)


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something is so, such as that a service is ready."""
    for _ in range(3600):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("it was not so within three minutes")


@contextmanager
def tiny_service(
    folder: Path, *models: str, **settings: Any
) -> Iterator[tuple[str, FastAPI, LoadedModel, dict[str, WatermarkKey]]]:
    """A running service of tiny models, of which the first marks with a key "main" and one with sub-keys, "many".

    Yields:
        Its address, the application, the first model, and the keys by name.
    """
    (folder / "keys").mkdir()
    model = load_model(str(folder / models[0]))
    keys = {"main": bound_key("main", model), "many": bound_key("many", model, subkeys=16)}
    for name, key in keys.items():
        key.save(folder / "keys" / f"{name}.json")
    sources = tuple(ModelSource({"name_or_path": str(folder / name)}) for name in models)
    shared: dict[str, Any] = {"tokenizer": str(folder / models[0]), "models": sources, "workers": 1, **settings}
    app = create_app(ServiceSettings(folder / "keys", **shared))
    with listening(app) as url:
        wait_for(lambda: app.state.service.ready)
        yield url, app, model, keys


@contextmanager
def served_to_client(
    folder: Path, **settings: Any
) -> Iterator[tuple[str, str, FastAPI, LoadedModel, dict[str, WatermarkKey]]]:
    """A running service of a tiny model that a client with a token may let write: the token, and `tiny_service`'s."""
    tiny_checkpoints.write(folder / "tiny", "llada")
    tokens = folder / "tokens.json"
    token = bearer(tokens, "client", "generate")["authorization"].removeprefix("Bearer ")
    with tiny_service(folder, "tiny", tokens=tokens, **settings) as service:
        yield token, *service


def bearer(tokens: Path, name: str, *scopes: str) -> dict[str, str]:
    """The header of a new token."""
    return {"authorization": f"Bearer {TokenFile(tokens).add(name, scopes)}"}
