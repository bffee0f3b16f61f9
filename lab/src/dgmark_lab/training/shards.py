"""Token shards: the documents' ids as memory-mapped uint16 arrays, with a manifest of their source.

A shard folder holds `tokens-*.npy`, `documents.npy` (a row (shard, start, tokens) per document), `documents.json`
(their ids), `tokenizer.json` and `manifest.json`. It is written whole or not at all.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt16

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import InputError, NoTexts
from dgmark.rows.outputs import atomic_folder
from dgmark_lab.training.corpus import Document, file_hash, read_documents
from dgmark_lab.training.files import write_json
from dgmark_lab.training.tokens import save_tokenizer, train_bpe, training_tokenizer

SCHEMA = 2
SHARD_TOKENS = 1 << 26
_DOCUMENTS_AT_ONCE = 64


@dataclass(frozen=True)
class Shards:
    """An opened shard folder.

    Attributes:
        tokens: one array of ids per shard.
        documents: (shard, start, number of tokens) of each document.
        names: the documents' ids.
        manifest: hashes of data and tokenizer, and counts.
    """

    folder: Path
    tokens: list[UInt16[np.ndarray, " _"]] = field(repr=False)
    documents: Int[np.ndarray, "documents 3"] = field(repr=False)
    names: list[str] = field(repr=False)
    manifest: dict[str, Any]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the shards."""
        return training_tokenizer(str(self.folder))


def prepare_shards(
    data: Path,
    folder: Path,
    *,
    tokenizer: Tokenizer | None,
    vocab_size: int = 8192,
    shard_tokens: int = SHARD_TOKENS,
) -> Shards:
    """Tokenise a data file into `folder`, or open the shards of an earlier call with the same file and tokenizer.

    Encoding runs on all cores (the `tokenizers` package's own threads).

    Args:
        data: documents (see `dgmark_lab.training.corpus`).
        folder: the folder of shards; replaced if it was made from other data or with another tokenizer.
        tokenizer: the tokenizer; None trains a new byte-level BPE of `vocab_size` tokens on the data.
        vocab_size: size of a new tokenizer.
        shard_tokens: number of tokens at which a shard is closed.

    Raises:
        NoTexts: the file does not exist, or holds no document.
        InputError: a line is not a document.
    """
    known = tokenizer.fingerprint if tokenizer else f"new {vocab_size}"
    source = {"data": file_hash(data), "tokenizer": known}
    if (folder / "manifest.json").is_file():
        shards = open_shards(folder)
        if shards.manifest["made_from"] == source:
            return shards
    with atomic_folder(folder) as beside:
        if tokenizer is None:
            backend = train_bpe((document.text for document in read_documents(data)), vocab_size)
            save_tokenizer(backend, beside)
            tokenizer = training_tokenizer(str(beside))
        else:
            save_tokenizer(tokenizer.backend, beside)
        manifest = _write(read_documents(data), tokenizer, beside, shard_tokens)
        manifest |= {"schema": SCHEMA, "made_from": source, "tokenizer_fingerprint": tokenizer.fingerprint}
        write_json(beside / "manifest.json", manifest)
    return open_shards(folder)


def open_shards(folder: Path) -> Shards:
    """Open a shard folder.

    Raises:
        NoTexts: the folder holds no shards.
        InputError: the folder is damaged or of another version.
    """
    if not (folder / "manifest.json").is_file():
        raise NoTexts(f"{folder} holds no token shards; make them with python -m dgmark_lab.training.prepare")
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA:
            raise ValueError(f"schema {manifest['schema']}, not {SCHEMA}")
        tokens = [np.load(folder / name, mmap_mode="r") for name in manifest["shards"]]
        documents = np.load(folder / "documents.npy")
        names = json.loads((folder / "documents.json").read_text(encoding="utf-8"))
        if sum(map(len, tokens)) != manifest["tokens"]:
            raise ValueError("the number of tokens differs from the manifest's")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{folder} is damaged ({error}); delete it and prepare the data again") from error
    return Shards(folder, tokens, documents, names, manifest)


def _write(documents: Iterable[Document], tokenizer: Tokenizer, folder: Path, shard_tokens: int) -> dict[str, Any]:
    """Write shards and document table; return their part of the manifest."""
    files: list[str] = []
    names: list[str] = []
    table: list[tuple[int, int, int]] = []
    pending: list[UInt16[np.ndarray, " tokens"]] = []
    held = characters = 0

    def close_shard() -> None:
        files.append(f"tokens-{len(files):05d}.npy")
        np.save(folder / files[-1], np.concatenate(pending))
        pending.clear()

    remaining = iter(documents)
    while some := list(islice(remaining, _DOCUMENTS_AT_ONCE)):
        encoded = tokenizer.encode_batch([document.text for document in some])
        characters += sum(len(document.text) for document in some)
        for document, ids in zip(some, encoded, strict=True):
            if not len(ids):  # a tokenizer may encode a text to nothing
                continue
            names.append(document.doc_id)
            table.append((len(files), held, len(ids)))
            pending.append(np.array(ids, np.uint16))
            held += len(ids)
            if held >= shard_tokens:
                close_shard()
                held = 0
    if pending:
        close_shard()
    np.save(folder / "documents.npy", np.array(table, np.int64).reshape(-1, 3))
    write_json(folder / "documents.json", names)
    tokens = sum(row[2] for row in table)
    return {"documents": len(table), "tokens": tokens, "characters": characters, "shards": files}
