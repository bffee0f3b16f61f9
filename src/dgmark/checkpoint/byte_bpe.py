"""Byte-level BPE tokenizers published as vocab.json and merges.txt, without a tokenizer.json (Dream).

Dream ships a Python class for them, which dgmark does not run. That class splits text as Qwen2 does; so does this code.
"""

import os
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from dgmark.checkpoint.folder import read_object
from dgmark.errors import CheckpointFormat

# Qwen2 splits text into contractions, letters with one mark before them, single digits, punctuation, spaces.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_CLASSES = ("DreamTokenizer", "Qwen2Tokenizer")
_MODEL_TYPES = ("dream", "qwen2")


def is_byte_bpe(folder: Path) -> bool:
    """Whether the folder holds vocab.json and merges.txt of Dream or Qwen2.

    RoBERTa and GPT-2 use the same file names but split text differently.

    Raises:
        CheckpointFormat: tokenizer_config.json or config.json cannot be read.
    """
    if not (os.path.isfile(folder / "vocab.json") and os.path.isfile(folder / "merges.txt")):
        return False
    tokenizer_class = _object(folder / "tokenizer_config.json").get("tokenizer_class")
    if isinstance(tokenizer_class, str):
        return tokenizer_class.removesuffix("Fast") in _CLASSES
    model_type = _object(folder / "config.json").get("model_type")
    return isinstance(model_type, str) and model_type.lower() in _MODEL_TYPES


def read_byte_bpe(folder: Path) -> Tokenizer:
    """Read the tokenizer of a folder with vocab.json and merges.txt.

    Added tokens come from tokenizer_config.json, or else from added_tokens.json.

    Raises:
        CheckpointFormat: a file is unreadable, or the ids of added tokens leave gaps.
    """
    try:
        model = BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        added = _added_tokens(folder)
    except CheckpointFormat:
        raise
    except Exception as error:  # the Rust side raises bare Exception
        raise CheckpointFormat(
            f"{folder}: vocab.json and merges.txt are not a readable tokenizer ({error}); fetch them again"
        ) from error
    backend = Tokenizer(model)
    backend.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    for token_id, token in sorted(added.items()):
        backend.add_special_tokens([token]) if token.special else backend.add_tokens([token])
        if backend.token_to_id(token.content) != token_id:
            raise CheckpointFormat(
                f"{folder}: token {token.content!r} cannot have id {token_id}: ids below it are missing; "
                "fetch the checkpoint again"
            )
    return backend


def _added_tokens(folder: Path) -> dict[int, AddedToken]:
    stated = _object(folder / "tokenizer_config.json").get("added_tokens_decoder")
    if stated:
        flags = ("special", "lstrip", "rstrip", "single_word", "normalized")
        return {
            int(token_id): AddedToken(token["content"], **{flag: bool(token.get(flag, False)) for flag in flags})
            for token_id, token in stated.items()
        }
    return {
        int(token_id): AddedToken(token, special=True, normalized=False)
        for token, token_id in _object(folder / "added_tokens.json").items()
    }


def _object(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
