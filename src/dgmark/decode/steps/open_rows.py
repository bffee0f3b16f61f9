"""The rows of a batch that a step of the decoding loop works on, before and after it.

Rows have something left to do in the active block: they are open. Their arrays are indexed by the open rows; `number`
says which rows of the batch these are.

Canvases and candidates are on the model's device. Which rows there are, and how much each has to do, is known on the
host, which reads it once a step (`RowsAfter.read`), and computes with it in numpy: a few numbers cost less there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from dgmark.decode.steps.proposals import Candidates
from dgmark.models.host import on_device, on_host, true_on_host

_ON_HOST = ("number", "session_row", "left")


@dataclass(frozen=True)
class Rows:
    """Some rows of the batch, in ascending order.

    Attributes:
        number: the number of each row in the batch, on the host.
        session_row: its row in the session's last `begin`, on the host.
        left: how many places of the active block are not committed, on the host.
        row: the number once more, on the device.
        ids: its canvas.
        masked: which places of its region are not committed.
        editing_steps: how many steps it has edited since its block was full.
    """

    number: Int[Tensor, " rows"]
    session_row: Int[Tensor, " rows"]
    left: Int[Tensor, " rows"]
    row: Int[Tensor, " rows"]
    ids: Int[Tensor, "rows length"]
    masked: Bool[Tensor, "rows region"]
    editing_steps: Int[Tensor, " rows"]

    @classmethod
    def of_batch(cls, ids: Int[Tensor, "rows length"], masked: Bool[Tensor, " region"]) -> "Rows":
        """All rows of a batch, with their canvases and what is to be filled in all."""
        every = torch.arange(len(ids))
        row = torch.arange(len(ids), device=ids.device)
        return cls(every, every, torch.zeros_like(every), row, ids, masked.repeat(len(ids), 1), torch.zeros_like(row))

    def __len__(self) -> int:
        return len(self.number)

    def at(self, which: Int[Tensor, " some"]) -> "Rows":
        """Some of these rows, by their places here, on the host."""
        if is_every(which, len(self)):
            return self
        if not len(which):  # which copies nothing
            return Rows(*(getattr(self, field.name)[:0] for field in fields(self)))
        index = on_device(which, self.ids.device)
        return Rows(*(getattr(self, field.name)[which if field.name in _ON_HOST else index] for field in fields(self)))

    def without(self, numbers: Sequence[int]) -> Int[Tensor, " others"]:
        """The places here of all rows but those with these numbers."""
        return (~torch.isin(self.number, torch.tensor(numbers, dtype=torch.long))).nonzero()[:, 0]

    def begin(self, left: int) -> "Rows":
        """These rows at the begin of a block in which so many places are to be filled."""
        return replace(
            self,
            session_row=torch.arange(len(self)),
            left=torch.full_like(self.left, left),
            editing_steps=torch.zeros_like(self.row),
        )

    @classmethod
    def joined(cls, several: "Sequence[Rows]") -> "Rows":
        """The rows of several."""
        rows = cls(*(torch.cat([getattr(rows, field.name) for rows in several]) for field in fields(cls)))
        return rows.at(rows.number.argsort())


def is_every(which: Int[Tensor, " some"], count: int) -> bool:
    """Whether these places, on the host, are all of so many, in their order."""
    return which.tolist() == list(range(count))


@dataclass(frozen=True)
class OpenRows:
    """Open rows, and the candidates of their next step.

    Attributes:
        rows: these rows.
        candidates: from the forward on their canvases.
        logits: those of that forward, for drawing again.
        canvas: the canvas of each row among those that the forward ran on, on the host.
    """

    rows: Rows
    candidates: Candidates
    logits: Float[Tensor, "canvases window vocab"]
    canvas: Int[Tensor, " rows"]

    def at(self, which: Int[Tensor, " some"]) -> "OpenRows":
        """Some of these rows, by their places here, on the host."""
        if is_every(which, len(self.rows)):
            return self
        candidates = self.candidates.at(on_device(which, self.rows.ids.device))
        return OpenRows(self.rows.at(which), candidates, self.logits, self.canvas[which])

    def logits_of(self, which: Int[Tensor, " n"]) -> Float[Tensor, "n window vocab"]:
        """The logits of some of these rows, by their places here, on the host."""
        return self.logits[on_device(self.canvas[which], self.logits.device)]


@dataclass(frozen=True)
class RowsAfter:
    """Rows after the commits of a step: on the device, `left` of the rows too, until the host has read them.

    Attributes:
        rows: the rows.
        chosen: the places of the block that were committed.
        unsettled: rows that have something left to do in the block even if it is full.
        ended: rows with an end token and nothing masked before it.
        masked: how many places of the region are masked.
    """

    rows: Rows
    chosen: Bool[Tensor, "rows window"]
    unsettled: Bool[Tensor, " rows"]
    ended: Bool[Tensor, " rows"]
    masked: Int[Tensor, " rows"]

    def read(self, candidates: Candidates, *others: Tensor) -> tuple["RowsAfter", Candidates, list[Tensor]]:
        """The same on the host, with the candidates of the step and other tensors, with one wait for all."""
        chosen, unsettled, ended, masked, left, *read = on_host(
            *(self.chosen, self.unsettled, self.ended, self.masked, self.rows.left, *candidates, *others)
        )
        after = RowsAfter(replace(self.rows, left=left), chosen, unsettled, ended, masked)
        return after, Candidates(*read[: len(candidates)]), read[len(candidates) :]

    @property
    def unfinished(self) -> NDArray[np.bool_]:
        """Whether something is left to do in the block, once it is read."""
        unfinished: NDArray[np.bool_] = (self.rows.left.numpy() > 0) | self.unsettled.numpy()
        return unfinished

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Whether the row is complete: it has ended, or is full and not to be edited."""
        complete: NDArray[np.bool_] = self.ended.numpy() | (self.masked.numpy() == 0) & ~self.unfinished
        return complete

    @property
    def open(self) -> Int[Tensor, " open"]:
        """The places of the rows that are still open."""
        return true_on_host(self.unfinished & ~self.complete)

    @property
    def closed(self) -> Int[Tensor, " closed"]:
        """The places of the rows that go on with the next block."""
        return true_on_host(~self.unfinished & ~self.complete)

    def at(self, which: Int[Tensor, " some"]) -> "RowsAfter":
        """Some of these rows, by their places here."""
        some = (values[which] for values in (self.chosen, self.unsettled, self.ended, self.masked))
        return RowsAfter(self.rows.at(which), *some)
