"""Training data: documents of a JSON Lines file, a tokenizer for them, and their token ids as one memory-mapped array.

A corpus folder holds `tokens.npy` (the ids of all documents, uint16), `documents.npy` (a row (start, tokens) per
document), `tokenizer.json` and `manifest.json`. It is written whole or not at all.
"""

import gzip
import hashlib
import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Bool, Int, UInt16
from tokenizers import decoders, models, pre_tokenizers, trainers

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import CheckpointFormat, InputError, NoTexts
from dgmark.rows.inputs import open_input
from dgmark.rows.outputs import atomic_folder, atomic_write

SCHEMA = 1
# In order of id, as in the built-in model; the names are LLaDA's.
END, START, MASK, PAD = SPECIAL_TOKENS = ("<|endoftext|>", "<|startoftext|>", "<|mdm_mask|>", "<|pad|>")
_CLOSING = "\"'”’)] "
_DOCUMENTS_AT_ONCE = 64
_OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
_WHAT = "a .jsonl or .jsonl.xz file"


def write_json(path: Path, content: Any) -> None:
    """Write JSON with indentation, for people to read."""
    atomic_write(path, json.dumps(content, indent=1) + "\n")


# ---- documents ----


@dataclass(frozen=True)
class Document:
    """One document, such as a book or a tale."""

    doc_id: str
    paragraphs: list[str]

    @property
    def text(self) -> str:
        """Its paragraphs, one a line."""
        return "\n".join(self.paragraphs)


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
                document = _document(line, f"{path}:{number}")
                if document.paragraphs:
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


def _document(line: bytes, source: str) -> Document:
    try:
        row = json.loads(line)
        paragraphs = row["paragraphs"]
        if not all(isinstance(paragraph, str) for paragraph in paragraphs):
            raise TypeError("a paragraph is not a text")
        return Document(str(row["id"]), [one for one in paragraphs if one.strip()])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f'{source} is not a document {{"id": ..., "paragraphs": [texts]}}: {error!r}') from error


# ---- tokenizers ----


def train_bpe(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE of `vocab_size` tokens that separates runs of newlines from the words around them."""
    backend = tokenizers.Tokenizer(models.BPE())
    newlines = pre_tokenizers.Split(tokenizers.Regex(r"\n+"), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([newlines, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a special token.

    Raises:
        CheckpointFormat: the vocabulary has no such token.
    """
    found: int | None = tokenizer.backend.token_to_id(token)
    if found is None:
        raise CheckpointFormat(f"{tokenizer.name} has no token {token}; train a new tokenizer")
    return found


def sentence_ends(tokenizer: Tokenizer) -> Bool[np.ndarray, " vocab"]:
    """Return which tokens end a sentence or line: their text ends with . ! ? (and closing quotes) or has a newline."""
    ends = np.zeros(tokenizer.vocab_size, np.bool_)
    for token_id in range(tokenizer.vocab_size):
        text = tokenizer.decode([token_id])
        ends[token_id] = "\n" in text or text.rstrip(_CLOSING).endswith((".", "!", "?"))
    return ends


# ---- token ids ----


@dataclass(frozen=True)
class Corpus:
    """An opened corpus folder.

    Attributes:
        tokens: the ids of all documents.
        documents: (start, number of tokens) of each document.
        made_from: hashes of data and tokenizer.
    """

    folder: Path
    tokens: UInt16[np.ndarray, " tokens"] = field(repr=False)
    documents: Int[np.ndarray, "documents 2"] = field(repr=False)
    made_from: dict[str, str]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the corpus."""
        return load_tokenizer(str(self.folder))


def prepare_corpus(data: Path, folder: Path, *, tokenizer: Tokenizer | None, vocab_size: int = 8192) -> Corpus:
    """Tokenise a data file into `folder`, or open the corpus of an earlier call with the same file and tokenizer.

    Args:
        data: documents (see `read_documents`).
        folder: the corpus folder; replaced if it was made from other data or with another tokenizer.
        tokenizer: the tokenizer; None trains a new byte-level BPE of `vocab_size` tokens on the data.
        vocab_size: size of a new tokenizer.

    Raises:
        NoTexts: the file does not exist, or holds no document.
        InputError: a line is not a document.
        CheckpointFormat: the tokenizer has more tokens than 16 bits can number.
    """
    if tokenizer and tokenizer.vocab_size > 2**16:
        raise CheckpointFormat(f"{tokenizer.name} has {tokenizer.vocab_size} tokens; a corpus holds ids below 65,536")
    known = tokenizer.fingerprint if tokenizer else f"new {vocab_size}"
    source = {"data": file_hash(data), "tokenizer": known}
    if (folder / "manifest.json").is_file():
        corpus = open_corpus(folder)
        if corpus.made_from == source:
            return corpus
    with atomic_folder(folder) as beside:
        if tokenizer is None:
            train_bpe((document.text for document in read_documents(data)), vocab_size).save(
                str(beside / "tokenizer.json")
            )
            tokenizer = load_tokenizer(str(beside))
        else:
            tokenizer.backend.save(str(beside / "tokenizer.json"))
        _write_ids(read_documents(data), tokenizer, beside)
        write_json(beside / "manifest.json", {"schema": SCHEMA, "made_from": source})
    return open_corpus(folder)


def open_corpus(folder: Path) -> Corpus:
    """Open a corpus folder.

    Raises:
        InputError: the folder is damaged or of another version.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA:
            raise ValueError(f"schema {manifest['schema']}, not {SCHEMA}")
        tokens = np.load(folder / "tokens.npy", mmap_mode="r")
        documents = np.load(folder / "documents.npy")
        return Corpus(folder, tokens, documents, manifest["made_from"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{folder} is damaged ({error}); delete it, so that the data is prepared again") from error


def _write_ids(documents: Iterator[Document], tokenizer: Tokenizer, folder: Path) -> None:
    """Write token ids and document table."""
    ids: list[UInt16[np.ndarray, " tokens"]] = []
    while some := [document.text for document in islice(documents, _DOCUMENTS_AT_ONCE)]:
        encoded = tokenizer.encode_batch(some)
        ids += [np.array(one, np.uint16) for one in encoded if one]  # a tokenizer may encode a text to nothing
    sizes = np.array([len(one) for one in ids], np.int64)
    np.save(folder / "tokens.npy", np.concatenate(ids))
    np.save(folder / "documents.npy", np.stack([np.cumsum(sizes) - sizes, sizes], axis=1))
