"""Tokenizers: text to token ids and back, special ids, and the fingerprint that a key is bound to.

A thin frozen wrapper around the `tokenizers` package. No torch, no transformers.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers

from dgmark.checkpoint.byte_bpe import is_byte_bpe, read_byte_bpe
from dgmark.checkpoint.folder import BUILTIN, find_checkpoint
from dgmark.errors import CheckpointFormat, ModelNotFound

# End-of-text and end-of-turn tokens of all families; a vocabulary that lacks one ignores it.
END_TOKENS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>", "<|role_end|>", "</s>", "[SEP]")

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class EncodedText:
    """Token ids of a text, and the characters [start, end) that each covers."""

    ids: list[int]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer.

    Attributes:
        name: where it was loaded from.
        backend: the tokenizer of the `tokenizers` package.
        vocab_size: largest token id plus one; a model's padded vocabulary may be larger.
        special_ids: ids that are never scored.
        end_ids: ids that end a response.
        fingerprint: hash of the vocabulary.
    """

    name: str
    backend: tokenizers.Tokenizer = field(repr=False)
    vocab_size: int
    special_ids: frozenset[int]
    end_ids: tuple[int, ...]
    fingerprint: str

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without added special tokens."""
        return self.encode_batch([text])[0]

    def encode_with_offsets(self, text: str) -> EncodedText:
        """Token ids of `text`, and the characters that each covers."""
        encoding = self.backend.encode(well_formed(text), add_special_tokens=False)
        return EncodedText(list(encoding.ids), list(encoding.offsets))

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Token ids of many texts. Computes no offsets, which would double the cost."""
        batch = self.backend.encode_batch_fast([well_formed(text) for text in texts], add_special_tokens=False)
        return [list(encoding.ids) for encoding in batch]

    def decode(self, ids: list[int]) -> str:
        """Text of token ids. Special tokens are left out."""
        return str(self.backend.decode(ids, skip_special_tokens=True))


def load_tokenizer(name_or_path: str = BUILTIN, revision: str | None = None) -> Tokenizer:
    """Load the tokenizer of a model name, a model folder, a hub id, or a `tokenizer.json` file.

    Raises:
        ModelNotFound: there is no such model or file.
        CheckpointFormat: the file is not a fast tokenizer.
    """
    path = Path(name_or_path).expanduser()
    if path.is_file() or (path / "tokenizer.json").is_file() or is_byte_bpe(path):
        return read_tokenizer(path, name_or_path)
    return read_tokenizer(find_checkpoint(name_or_path, revision).folder, name_or_path)


def read_tokenizer(path: Path, name: str) -> Tokenizer:
    """Read the tokenizer of a model folder (tokenizer.json, or vocab.json and merges.txt), or a `tokenizer.json` file.

    Raises:
        ModelNotFound: the folder holds no tokenizer.
        CheckpointFormat: the file is not a fast tokenizer.
    """
    file = path if path.is_file() else path / "tokenizer.json"
    if not file.is_file() and is_byte_bpe(path):
        return wrap(read_byte_bpe(path), name)
    if not file.is_file():
        raise ModelNotFound(
            f"{path} holds no tokenizer.json; give a folder or a file that has one (option --tokenizer)"
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust side raises bare Exception
        raise CheckpointFormat(f"{file} is not a readable tokenizer: {error}") from error
    return wrap(backend, name)


def wrap(backend: tokenizers.Tokenizer, name: str) -> Tokenizer:
    """Wrap a tokenizer that is already loaded (for example `fast_tokenizer.backend_tokenizer`)."""
    special = {token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special}
    known = {token: backend.token_to_id(token) for token in END_TOKENS}
    return Tokenizer(
        name=name,
        backend=backend,
        vocab_size=max(backend.get_vocab(with_added_tokens=True).values()) + 1,
        special_ids=frozenset(special),
        end_ids=tuple(sorted(i for i in known.values() if i is not None and i in special)),
        fingerprint=vocabulary_fingerprint(backend.get_vocab(with_added_tokens=True)),
    )


def vocabulary_fingerprint(vocabulary: dict[str, int]) -> str:
    """First 16 hex digits of the SHA-256 of all (id, token) pairs, sorted by id."""
    pairs = sorted((token_id, token) for token, token_id in vocabulary.items())
    canonical = json.dumps(pairs, ensure_ascii=True, separators=(",", ":")).encode()
    return hashlib.sha256(b"dgmark/vocabulary/v1\0" + canonical).hexdigest()[:16]


def well_formed(text: str) -> str:
    """`text` with surrogates, which UTF-8 cannot encode, replaced by U+FFFD. Offsets stay the same."""
    return _SURROGATES.sub("\ufffd", text)
