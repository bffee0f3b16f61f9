"""Checkpoints by hub id, fetched and cached by huggingface_hub. Only data files are fetched, never code."""

import re
from pathlib import Path

from dgmark.errors import ModelNotFound

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_TEXT_FILES = ("*.json", "merges.txt")
_WEIGHT_FILES = ("*.safetensors",)


def is_hub_id(name: str) -> bool:
    """Whether a name has the form "organisation/model"."""
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


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
