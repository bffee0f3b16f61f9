"""The narrator's data for training and evaluation: texts of its base, and documents written by people."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dgmark.checkpoint.tokenizer import Tokenizer, read_tokenizer
from dgmark.errors import CheckpointFormat
from dgmark.rows.jsonl import Row, read_good_rows
from dgmark_lab.training.corpus import file_hash, read_documents
from dgmark_lab.training.narrator.base import END
from dgmark_lab.training.narrator.config import BlockMasking, NarratorConfig
from dgmark_lab.training.narrator.rows import BlockBatch, Passage, PassageRows

SHORTEST = 8  # tokens of a document that are never predicted, at its start
BOUND = BlockMasking(ordered_share=0.0, spreads=(1.0,), largest_weight=1e9)

_HELD_OUT_EVERY = 20  # of the base's own texts
_HELD_OUT_BATCH = 8


@dataclass(frozen=True)
class Data:
    """Rows for training and evaluation, and hashes of their sources."""

    train: PassageRows
    held_out: dict[str, list[BlockBatch]]
    made_from: dict[str, str]


def read_data(config: NarratorConfig, base: Path, own: Path, documents: Path, heldout: Path) -> Data:
    """Read the base's own texts and people's documents, some of both held out.

    Raises:
        DgmarkError: a file is unusable.
    """
    tokenizer = read_tokenizer(base, base.name)
    end_id = tokenizer.backend.token_to_id(END)
    if end_id is None:
        raise CheckpointFormat(f"{base}: the tokenizer has no {END}")
    texts = read_own_texts(own, tokenizer.end_ids)
    own_held_out, own_train = texts[::_HELD_OUT_EVERY], [text for at, text in enumerate(texts) if at % _HELD_OUT_EVERY]
    people = passages(documents, tokenizer, config.rows.mixture)
    unseen = passages(heldout, tokenizer, config.rows.mixture)
    train = PassageRows(own_train, people, config.rows, end_id, config.seed)
    measured = config.rows.model_copy(
        update={
            "batch": _HELD_OUT_BATCH,
            "block_lengths": (max(config.rows.block_lengths),),
            "late_block_lengths": (),
        }
    )
    held_out = {}
    for name, share in (("heldout", 0.0), ("heldout_own", 1.0)):
        settings = measured.model_copy(update={"own_share": share})
        rows = PassageRows(own_held_out, unseen, settings, end_id, config.seed + 1)
        steps = range(config.record.evaluate_rows // _HELD_OUT_BATCH)
        held_out[name] = [rows.step(step, BOUND).first_copy() for step in steps]
    made_from = {
        "own": file_hash(own),
        "documents": file_hash(documents),
        "base": file_hash(base / "model.safetensors"),
    }
    return Data(train, held_out, made_from)


def read_own_texts(path: Path, end_ids: tuple[int, ...]) -> list[Passage]:
    """Read the texts that the base wrote, each after its request; a complete text ends with an end token."""
    return [_own_text(text, end_ids) for row in read_good_rows(str(path)) for text in row["texts"]]


def _own_text(text: Row, end_ids: tuple[int, ...]) -> Passage:
    prompt, answer = text["prompt"], text["text"]
    ended = answer[-1] in end_ids
    return Passage(np.array(prompt + answer[: len(answer) - ended], np.uint16), len(prompt), ended)


def passages(path: Path, tokenizer: Tokenizer, names: tuple[str, ...]) -> list[Passage]:
    """Read the documents of a file whose id begins with one of the names; all documents if there are no names."""
    texts = [one.text for one in read_documents(path) if one.doc_id.startswith(names or ("",))]
    encoded = [np.array(ids, np.uint16) for ids in tokenizer.encode_batch(texts)]
    return [Passage(ids, SHORTEST, ended=True) for ids in encoded if len(ids) > 2 * SHORTEST]
