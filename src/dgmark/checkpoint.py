"""A checkpoint folder as far as it can be read without torch: sizes, special ids, where it lies.

Key generation and detection need the tokenizer and the padded vocabulary of a model, never its weights.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgmark.errors import CheckpointFormat, ModelNotFound

BUILTIN = "storyteller"
_BUILTIN_FOLDER = Path(__file__).parent / "storyteller"


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
        size = self.config.get("embedding_size") or self.config.get("vocab_size")
        if not isinstance(size, int) or size < 2:
            raise CheckpointFormat(f"{self.folder / 'config.json'} states no vocab_size; is this a language model?")
        return size


def find_checkpoint(name_or_path: str) -> Checkpoint:
    """The built-in model by its name, or a local folder by its path.

    Raises:
        ModelNotFound: neither the built-in name nor a folder with a `config.json`.
        CheckpointFormat: the folder's `config.json` cannot be read.
    """
    folder = _BUILTIN_FOLDER if name_or_path == BUILTIN else Path(name_or_path).expanduser()
    path = folder / "config.json"
    if not path.is_file():
        raise ModelNotFound(
            f"no model {name_or_path!r}: give the built-in name {BUILTIN!r} or a folder that holds a config.json"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointFormat(f"{path} is not valid JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(config, dict):
        raise CheckpointFormat(f"{path} holds no JSON object; fetch the checkpoint again")
    return Checkpoint(name=name_or_path, folder=folder, config=config)
