"""Training data: documents of a JSON Lines file, and their token ids as one memory-mapped array.

A corpus folder holds `tokens.npy` (the ids of all documents, uint16), `documents.npy` (a row (start, tokens) per
document) and `manifest.json`. It is written whole or not at all.
"""

import gzip
import hashlib
import json
import lzma
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt16
from pydantic import BaseModel, ConfigDict, ValidationError

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import InputError, NoTexts
from dgmark.files.inputs import open_input
from dgmark.files.outputs import atomic_folder, atomic_write

# Ids in the built-in tokenizer.
END, MASK = 0, 2
_CLOSING = "\"'”’)] "
_DOCUMENTS_AT_ONCE = 64
_OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
_WHAT = "a .jsonl or .jsonl.xz file"


def write_json(path: Path, content: Any) -> None:
    """Write JSON with indentation, for people to read."""
    atomic_write(path, json.dumps(content, indent=1) + "\n")


# ---- documents ----


class Document(BaseModel):
    """One document, such as a book or a tale."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str
    paragraphs: list[str]

    @property
    def text(self) -> str:
        """Its paragraphs that are not blank, one a line."""
        return "\n".join(one for one in self.paragraphs if one.strip())


def read_documents(path: Path) -> Iterator[Document]:
    """Read the documents that contain text: {"id": ..., "paragraphs": [...]}, one a line, plain or compressed.

    Raises:
        NoTexts: the file is unreadable, or holds no document.
        InputError: a line is not a document, or the file is damaged.
    """
    empty = True
    with open_input(str(path), _WHAT) as file, _OPENERS.get(path.suffix, nullcontext)(file) as lines:
        try:
            for number, line in enumerate(lines, 1):
                try:
                    document = Document.model_validate_json(line)
                except ValidationError as error:
                    reason = error.errors()[0]["msg"]
                    raise InputError(f'{path}:{number} is no {{"id": ..., "paragraphs": [texts]}}: {reason}') from None
                if any(map(str.strip, document.paragraphs)):
                    empty = False
                    yield document
        except (lzma.LZMAError, EOFError, OSError) as error:
            raise InputError(f"{path} is damaged ({error}); fetch it again") from error
    if empty:
        raise NoTexts(f"{path} holds no document")


def file_hash(path: Path) -> str:
    """Hash a file's bytes with SHA-256, in hex.

    Raises:
        NoTexts: the file is unreadable.
    """
    with open_input(str(path), _WHAT) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- token ids ----


def sentence_ends(tokenizer: Tokenizer) -> Bool[np.ndarray, " vocab"]:
    """Return which tokens end a sentence or line: their text ends with . ! ? (and closing quotes) or has a newline."""
    ends = np.zeros(tokenizer.vocab_size, np.bool_)
    for token_id in range(tokenizer.vocab_size):
        text = tokenizer.decode([token_id])
        ends[token_id] = "\n" in text or text.rstrip(_CLOSING).endswith((".", "!", "?"))
    return ends


@dataclass(frozen=True)
class Corpus:
    """The token ids of documents.

    Attributes:
        tokenizer: the built-in tokenizer.
        tokens: the ids of all documents.
        documents: (start, number of tokens) of each document.
        made_from: hashes of data and tokenizer.
    """

    tokenizer: Tokenizer
    tokens: UInt16[np.ndarray, " tokens"] = field(repr=False)
    documents: Int[np.ndarray, "documents 2"] = field(repr=False)
    made_from: dict[str, str]


def prepare_corpus(data: Path, folder: Path) -> Corpus:
    """Tokenise a data file into `folder`, or open what an earlier call with the same file made there.

    Raises:
        NoTexts: the file does not exist, or holds no document.
        InputError: a line is not a document.
    """
    tokenizer, manifest = load_tokenizer(), folder / "manifest.json"
    made_from = {"data": file_hash(data), "tokenizer": tokenizer.fingerprint}
    if not manifest.is_file() or json.loads(manifest.read_text(encoding="utf-8")) != made_from:
        with atomic_folder(folder) as beside:
            documents, ids = read_documents(data), list[UInt16[np.ndarray, " tokens"]]()
            while some := [document.text for document in islice(documents, _DOCUMENTS_AT_ONCE)]:
                encoded = tokenizer.encode_batch(some)
                ids += [np.array(one, np.uint16) for one in encoded if one]  # a text may be encoded to nothing
            sizes = np.array([len(one) for one in ids], np.int64)
            np.save(beside / "tokens.npy", np.concatenate(ids))
            np.save(beside / "documents.npy", np.stack([np.cumsum(sizes) - sizes, sizes], axis=1))
            write_json(beside / manifest.name, made_from)
    tokens = np.load(folder / "tokens.npy", mmap_mode="r")
    return Corpus(tokenizer, tokens, np.load(folder / "documents.npy"), made_from)
