"""A checkpoint folder as far as it can be read without torch: sizes, special ids, where it lies.

Key generation and detection need the tokenizer and the padded vocabulary of a model, never its weights.
"""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dgmark.checkpoint.hub import is_hub_id, snapshot
from dgmark.errors import CheckpointFormat, MissingExtra, ModelNotFound

BUILTIN = "storyteller"
NARRATOR = "narrator"
# models that come with dgmark; the first is the default
BUILTINS = (BUILTIN, NARRATOR)


@dataclass(frozen=True)
class Checkpoint:
    """A model folder in the public Hugging Face layout.

    `vocab_size` is the padded vocabulary: the number of rows of the output matrix, at least the tokenizer's.
    """

    name: str
    folder: Path
    config: dict[str, Any]

    @property
    def vocab_size(self) -> int:
        """Rows of the output matrix (LLaDA pads `vocab_size` to `embedding_size`)."""
        sizes = [self.config.get("vocab_size")]
        if self.config.get("model_type") == "llada":
            sizes.append(self.config.get("embedding_size"))
        size = max((size for size in sizes if isinstance(size, int)), default=0)
        if size < 2:
            raise CheckpointFormat(f"{self.folder / 'config.json'} states no vocab_size; is this a language model?")
        return size

    def require(self, *names: str) -> list[Any]:
        """Values of the configuration.

        Raises:
            CheckpointFormat: it lacks one of them.
        """
        missing = [name for name in names if name not in self.config]
        if missing:
            raise CheckpointFormat(f"{self.folder / 'config.json'} lacks {', '.join(map(repr, missing))}")
        return [self.config[name] for name in names]


def find_checkpoint(name_or_path: str, revision: str | None = None, *, weights: bool = False) -> Checkpoint:
    """A built-in model by its name, a local folder by its path, or a checkpoint by its hub id.

    Args:
        name_or_path: a folder is preferred to a hub id of the same form.
        revision: of a hub id; branch, tag or commit.
        weights: whether to fetch the weights of a hub id, too.

    Raises:
        MissingExtra: the built-in models are not installed.
        ModelNotFound: neither a built-in name, nor a folder with a `config.json`, nor a hub id that can be had.
        CheckpointFormat: the folder's `config.json` cannot be read.
    """
    builtin = name_or_path in BUILTINS
    folder = builtin_folder(name_or_path) if builtin else Path(name_or_path).expanduser()
    if not folder.is_dir() and is_hub_id(name_or_path):
        folder = snapshot(name_or_path, revision, weights=weights)
    path = folder / "config.json"
    if not path.is_file():
        raise ModelNotFound(
            f"no model {name_or_path!r}: give a built-in name ({', '.join(BUILTINS)}), a folder that holds a "
            "config.json, or a hub id such as 'GSAI-ML/LLaDA-8B-Instruct'"
        )
    return Checkpoint(name=name_or_path, folder=folder, config=read_object(path))


def builtin_folder(name: str) -> Path:
    """Where a built-in model lies: in the package `dgmark_builtin`, a distribution of its own, which holds data alone.

    Raises:
        MissingExtra: it is not installed.
    """
    found = find_spec("dgmark_builtin")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(
            f"the built-in {name} is a package of its own, which is not installed: run `pip install ./builtin` in a "
            "checkout of dgmark, or name another model"
        )
    return Path(found.submodule_search_locations[0]) / name


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint.

    Raises:
        CheckpointFormat: it holds none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointFormat(f"{path} is not valid JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(content, dict):
        raise CheckpointFormat(f"{path} holds no JSON object; fetch the checkpoint again")
    return content
