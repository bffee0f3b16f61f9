"""Checkpoint folders: where they are, in the hub's cache too, and what config.json says. No torch.

Key generation and detection need a model's tokenizer and padded vocabulary. They do not need its weights.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dgmark.arguments.checks import path_text, shown
from dgmark.checkpoint.gguf import is_gguf, read_header
from dgmark.errors import CheckpointFormat, MissingExtra, ModelNotFound, SettingsError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_HUB_FILE = re.compile(rf"({_HUB_ID.pattern})/([\w./-]+\.gguf)", re.ASCII)
# what is fetched: data files, never code
_TEXT_FILES = ("*.json", "merges.txt")
_WEIGHT_FILES = ("*.safetensors",)
_POINTER = b"version https://git-lfs.github.com/spec/"
BUILTIN = "storyteller"
NARRATOR = "narrator"
# the models of the package dgmark-builtin; the first is the default
BUILTINS = (BUILTIN, NARRATOR)


def model_option(name: str) -> str:
    """The option that names a model in a command that is shown to somebody; "" for the default model."""
    return "" if name == BUILTIN else f" --model {shlex.quote(name)}"


@dataclass(frozen=True)
class Checkpoint:
    """A model folder in the public Hugging Face layout, or a GGUF file, which is its own folder here.

    `vocab_size` is the padded vocabulary: the number of rows of the output matrix, at least the tokenizer's.
    """

    name: str
    folder: Path
    config: dict[str, Any]

    @property
    def vocab_size(self) -> int:
        """Rows of the output matrix (LLaDA pads `vocab_size` to `embedding_size`)."""
        configs = self.config, self.config.get("text_config")  # models that read images have it in the second
        sizes = [config.get("vocab_size") for config in configs if isinstance(config, dict)]
        if self.config.get("model_type") == "llada":
            sizes.append(self.config.get("embedding_size"))
        size = max((size for size in sizes if isinstance(size, int)), default=0)
        if size < 2:
            raise CheckpointFormat(
                f"{self.folder / 'config.json'} has no vocab_size: give the folder of a language model"
            )
        return size

    def require(self, *names: str) -> list[Any]:
        """Values from config.json; a CheckpointFormat error if it lacks one of them."""
        missing = [name for name in names if name not in self.config]
        if missing:
            raise CheckpointFormat(
                f"{self.folder / 'config.json'} lacks {', '.join(map(repr, missing))}: fetch the checkpoint again"
            )
        return [self.config[name] for name in names]


def find_checkpoint(
    name_or_path: str | os.PathLike[str],
    revision: str | None = None,
    *,
    weights: bool = False,
    names: Iterable[str] = BUILTINS,
) -> Checkpoint:
    """Find a built-in model by name, a local folder or GGUF file by path, or a checkpoint by hub id.

    An existing folder wins over a hub id; a `Path` is always a path. The revision is a branch, tag or commit of a hub
    id, whose weights are fetched if `weights` is set. Errors offer `names`.
    """
    try:
        name = path_text(name_or_path, "a model")
    except SettingsError as error:
        raise ModelNotFound(
            f"a model is given by name, folder or hub id, not by {shown(name_or_path)}: {error}"
        ) from None
    if revision is not None and not isinstance(revision, str):
        raise SettingsError(f"a revision is the name of a branch, tag or commit, not {shown(revision)}")
    builtin = isinstance(name_or_path, str) and name_or_path in BUILTINS
    if builtin and revision is not None:
        raise SettingsError(
            f"the built-in {name} has no revisions: leave the revision ({revision}) out, or name the model by a hub id"
        )
    folder = builtin_folder(name) if builtin else Path(os.path.expanduser(name))
    if is_gguf(folder):
        return Checkpoint(name=name, folder=folder, config=read_header(folder).config)
    if isinstance(name_or_path, str) and not os.path.isdir(folder) and is_hub_id(name):
        folder = snapshot(name, revision, weights=weights)
    path = folder / "config.json"
    if not os.path.isfile(path):
        raise ModelNotFound(
            f"no model {name!r}: give a built-in name ({', '.join(names)}), a folder that holds a config.json, a GGUF "
            "file, or a hub id, organisation/model"
        )
    return Checkpoint(name=name, folder=folder, config=read_object(path))


def find_gguf(name_or_path: str | os.PathLike[str], revision: str | None = None) -> Path | None:
    """The GGUF file of this path, or of a hub id with the file's name after it; None if this names neither.

    A name such as "organisation/model/file.gguf" is taken from the hub's cache or fetched. An existing file wins; a
    `Path` is always a path.
    """
    if is_gguf(name_or_path):
        return Path(os.path.expanduser(name_or_path))
    named = _HUB_FILE.fullmatch(name_or_path) if isinstance(name_or_path, str) else None
    if named is None or ".." in named.string or os.path.exists(named.string):
        return None
    from huggingface_hub import hf_hub_download

    hub_id, file = named.groups()
    what = f"{named.string} is not a local file; as the file {file} of the hub id {hub_id}"
    with _fetching(what, hub_id, revision, file):
        return Path(hf_hub_download(hub_id, file, revision=revision))


@contextmanager
def _fetching(what: str, hub_id: str, revision: str | None, files: str) -> Iterator[None]:
    """Say of files that cannot be fetched how to fetch them elsewhere."""
    try:
        yield
    except Exception as error:  # a broken connection raises errors of httpx, which are not OSErrors
        at = f" --revision {revision}" if revision else ""
        raise ModelNotFound(
            f"{what} it is not in the cache and cannot be fetched ({first_line(error)}). On a machine with network "
            f"access, run: hf download {hub_id}{at} {files}"
        ) from error


def is_hub_id(name: str) -> bool:
    """Whether a name has the form "organisation/model"."""
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


def builtin_folder(name: str) -> Path:
    """The folder of a built-in model in the data-only package `dgmark_builtin`; a MissingExtra without it."""
    found = find_spec("dgmark_builtin")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(
            f"the built-in {name} comes in a separate package, which is not installed: run `pip install ./builtin` "
            "in a checkout of dgmark, or choose another model"
        )
    return Path(found.submodule_search_locations[0]) / name


def check_fetched(path: Path) -> None:
    """Refuse a file of three lines that git leaves in place of a large one where git-lfs is missing."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise CheckpointFormat(
                f"{path} is a pointer of git-lfs and not the file itself: install git-lfs and run `git lfs pull` in "
                "its folder, or fetch the checkpoint with `hf download`"
            )


def read_object(path: Path, *, or_empty: bool = False) -> dict[str, Any]:
    """The JSON object in a checkpoint's file, {} for none if `or_empty` is set; others are CheckpointFormat errors."""
    if or_empty and not path.is_file():
        return {}
    check_fetched(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointFormat(f"{path} is not valid JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(content, dict):
        raise CheckpointFormat(f"{path} does not hold a JSON object; fetch the checkpoint again")
    return content


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def snapshot(hub_id: str, revision: str | None = None, *, weights: bool = False) -> Path:
    """The folder of a checkpoint of the hub in the local cache, with its weights if asked for. Fetches it if it is
    missing.
    """
    from huggingface_hub import snapshot_download

    include = " ".join(f"--include '{pattern}'" for pattern in [*_TEXT_FILES, *_WEIGHT_FILES])
    wanted = [*_TEXT_FILES, *(_WEIGHT_FILES if weights else ())]
    with _fetching(f"{hub_id} is not a local folder; as a hub id", hub_id, revision, include):
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=wanted, ignore_patterns=["*/*"]))
