"""Checkpoints by hub id, fetched and cached by huggingface_hub. Only data files are fetched, never code."""

import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from dgmark.errors import ModelNotFound

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_OFFLINE = "HF_HUB_OFFLINE"
_PATIENCE = 5.0  # seconds
_TEXT_FILES = ("*.json", "merges.txt")
_WEIGHT_FILES = ("*.safetensors",)


def is_hub_id(name: str) -> bool:
    """Whether a name has the form "organisation/model"."""
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


def offline_if_unreachable() -> None:
    """Let the libraries of the hub answer from their cache at once, if the hub cannot be reached.

    They would try again for half a minute, with warnings. It has an effect only before they are imported; a choice
    that the user made (`HF_HUB_OFFLINE`) and a proxy, which may reach what this machine does not, are left alone.
    """
    if _OFFLINE in os.environ or getproxies():
        return
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=_PATIENCE).close()
    except OSError:
        os.environ[_OFFLINE] = "1"


def snapshot(hub_id: str, revision: str | None = None, *, weights: bool = False) -> Path:
    """The folder of a checkpoint in the local cache. Fetches it if it is missing.

    Args:
        hub_id: "organisation/model".
        revision: branch, tag or commit; None for the main branch.
        weights: whether to fetch the weights as well as the tokenizer and the configuration.

    Raises:
        ModelNotFound: the checkpoint is not in the cache and cannot be fetched.
    """
    from huggingface_hub import snapshot_download

    wanted = [*_TEXT_FILES, *(_WEIGHT_FILES if weights else ())]
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except Exception as error:  # a broken connection raises errors of httpx, which are not OSErrors
        at = f" --revision {revision}" if revision else ""
        include = " ".join(f"--include '{pattern}'" for pattern in [*_TEXT_FILES, *_WEIGHT_FILES])
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelNotFound(
            f"{hub_id} is not a local folder; as a hub id it is not in the cache and cannot be fetched ({reason}). "
            f"On a machine with network access, run: hf download {hub_id}{at} {include}"
        ) from error
