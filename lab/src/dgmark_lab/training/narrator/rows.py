"""Texts, rows and masks for training block diffusion from an autoregressive model.

The rows and masks of a step are functions of seed and step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt16
from torch import Tensor

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.rows.jsonl import read_good_rows
from dgmark_lab.training.config import BlockMasking, BlockRows
from dgmark_lab.training.corpus import read_documents

COPIES = 2  # masked copies of each response
SHORTEST = 8  # tokens of a document that are never predicted, at its start

_ROWS, _MASKS = 0, 1


@dataclass(frozen=True)
class Passage:
    """A text to learn from.

    Attributes:
        ids: its tokens, beginning with the prompt or opening.
        prompt_tokens: number of tokens at the start that are never predicted.
        ended: whether the text ends after its last token; otherwise it was cut there.
    """

    ids: UInt16[np.ndarray, " length"]
    prompt_tokens: int
    ended: bool


def read_own_texts(path: Path, end_ids: tuple[int, ...]) -> list[Passage]:
    """Read the texts that the base wrote, each after its request; a complete text ends with an end token."""
    passages = []
    for text in (text for row in read_good_rows(str(path)) for text in row["texts"]):
        prompt, answer = text["prompt"], text["text"]
        ended = answer[-1] in end_ids
        ids = np.array(prompt + answer[: len(answer) - ended], np.uint16)
        passages.append(Passage(ids, len(prompt), ended))
    return passages


def passages(path: Path, tokenizer: Tokenizer, names: tuple[str, ...]) -> list[Passage]:
    """Read the documents of a file whose id begins with one of the names; all documents if there are no names."""
    texts = [one.text for one in read_documents(path) if one.id.startswith(names or ("",))]
    encoded = [np.array(ids, np.uint16) for ids in tokenizer.encode_batch(texts)]
    return [Passage(ids, SHORTEST, ended=True) for ids in encoded if len(ids) > 2 * SHORTEST]


@dataclass(frozen=True)
class BlockBatch:
    """Rows of context and response, and which tokens of each copy are masked.

    Attributes:
        ids: context, aligned to the right, and response.
        absent: number of empty positions at the start of each row.
        block: block length of each row's response.
        masked: which positions of the copies are masked.
        targets: number of positions of each response in blocks that are learned.
        weights: weight of the cross entropy at each position of the copies; 0 where nothing is predicted.
        front: masked positions of the base's texts, the end token included, with nothing unmasked after them in their
            block.
        unwritten: number of positions at the start of each row that are empty or belong to the prompt.
    """

    ids: Int[Tensor, "rows clean"]
    absent: Int[Tensor, " rows"]
    block: Int[Tensor, " rows"]
    masked: Bool[Tensor, "rows copies response"]
    targets: Int[Tensor, " rows"]
    weights: Float[Tensor, "rows copies response"]
    front: Bool[Tensor, "rows copies response"]
    unwritten: Int[Tensor, " rows"]

    def first_copy(self) -> "BlockBatch":
        """Return the same rows, predicted in the first copy only, whose masks are those of the bound."""
        weights = self.weights.clone()
        weights[:, 1:] = 0
        return replace(self, weights=weights)


class PassageRows:
    """Rows from two kinds of passages: the base's own, and those of people.

    The token `end_id` fills a block after the end of a text.
    """

    def __init__(
        self, own: Sequence[Passage], real: Sequence[Passage], settings: BlockRows, end_id: int, seed: int
    ) -> None:
        self._kinds = (own, real)
        self._settings, self._end_id, self._seed = settings, end_id, seed
        weights = [np.array([len(one.ids) - one.prompt_tokens for one in kind], np.float64) for kind in self._kinds]
        self._odds = [weight / weight.sum() for weight in weights]

    def step(self, step: int, masking: BlockMasking) -> BlockBatch:
        """Return the rows of a step, masked."""
        settings = self._settings
        rng = np.random.default_rng((self._seed, _ROWS, step))
        kinds = (np.arange(settings.batch) + rng.random()) / settings.batch >= settings.own_share
        drawn = [self.row(int(kind), rng) for kind in kinds]
        ids, absent, lengths, ended, unwritten = (np.array(part) for part in zip(*drawn, strict=True))
        block = rng.choice(settings.lengths_at(step), settings.batch)
        targets = np.minimum(target_positions(lengths, ended, block), settings.response)
        masks = np.random.default_rng((self._seed, _MASKS, step))
        masked, weights, front = mask_rows(block, targets, settings.response, masking, masks)
        drawn_by_base = ~kinds[:, None] & (np.arange(settings.response) <= lengths[:, None])  # the end token included
        front &= drawn_by_base[:, None]
        parts = (ids, absent, block, masked, targets, weights, front, unwritten)
        return BlockBatch(*map(torch.from_numpy, parts))

    def row(self, kind: int, rng: np.random.Generator) -> tuple[Int[np.ndarray, " clean"], int, int, bool, int]:
        """Draw a row: ids, number of empty positions, number of tokens of the response that are text, whether the text
        ends after them, and number of positions before the first written one.
        """
        settings, passages = self._settings, self._kinds[kind]
        passage = passages[int(rng.choice(len(passages), p=self._odds[kind]))]
        last = max(passage.prompt_tokens, len(passage.ids) - settings.response // 2)
        at_start = rng.random() < settings.start_share
        start = passage.prompt_tokens if at_start else int(rng.integers(passage.prompt_tokens, last + 1))
        context = passage.ids[max(0, start - settings.context) : start]
        response = passage.ids[start : start + settings.response]
        ids = np.full(settings.context + settings.response, self._end_id, np.int64)
        ids[settings.context - len(context) : settings.context] = context
        ids[settings.context : settings.context + len(response)] = response
        ends_here = passage.ended and start + settings.response > len(passage.ids)
        written = min(len(context), start - passage.prompt_tokens)
        return ids, settings.context - len(context), len(response), ends_here, settings.context - written


def target_positions(
    lengths: Int[np.ndarray, " rows"], ended: Bool[np.ndarray, " rows"], block: Int[np.ndarray, " rows"]
) -> Int[np.ndarray, " rows"]:
    """Return how many positions of each response are learned: whole blocks, the text's last one filled up."""
    learned: Int[np.ndarray, " rows"] = np.where(ended, (lengths // block + 1) * block, lengths // block * block)
    return learned


def mask_rows(
    block: Int[np.ndarray, " rows"],
    targets: Int[np.ndarray, " rows"],
    response: int,
    masking: BlockMasking,
    rng: np.random.Generator,
) -> tuple[
    Bool[np.ndarray, "rows copies response"],
    Float[np.ndarray, "rows copies response"],
    Bool[np.ndarray, "rows copies response"],
]:
    """Mask a number of positions, uniform in 1 ... block, in each block of two copies.

    Returns `masked`, `weights` and `front` of a batch (see `BlockBatch`), as if the base had written all texts.

    In some rows the second copy masks what the first one leaves; in the others each copy keeps tokens roughly from left
    to right, as decoding by confidence does. The masked positions of a block are averaged, so that a row's expectation
    is the bound (Nie et al. 2025, Eq. 6), except that `largest_weight` limits the weight of few masked positions.
    """
    masked = np.zeros((len(block), COPIES, response), np.bool_)
    weights = np.zeros(masked.shape, np.float32)
    front = np.zeros_like(masked)
    for row in range(len(block)):
        size = int(block[row])
        ordered = rng.random() < masking.ordered_share
        for begin in range(0, int(targets[row]), size):
            spread = rng.choice(masking.spreads)
            for copy in range(COPIES):
                if copy == 0 or ordered:
                    count = int(rng.integers(1, size + 1))
                    noise = rng.standard_normal(size)
                    late = np.argsort((np.arange(size) + spread * noise) if ordered else noise)[size - count :]
                    here = np.isin(np.arange(size), late)
                else:
                    here, count = ~here, size - count
                masked[row, copy, begin : begin + size] = here
                front[row, copy, begin : begin + size] = np.logical_and.accumulate(here[::-1])[::-1]
                if count:
                    weights[row, copy, begin : begin + size] = here * min(size / count, masking.largest_weight)
    return masked, weights, front
