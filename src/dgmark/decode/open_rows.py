"""The rows of a batch that a step of the decoding loop works on, before and after it.

Rows have something left to do in the active block: they are open. Their arrays are indexed by the open rows; `number`
says which rows of the batch these are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.proposals import Candidates


@dataclass(frozen=True)
class Rows:
    """Some rows of the batch, in ascending order.

    Attributes:
        number: the number of each row in the batch.
        session_row: its row in the session's last `begin`.
        ids: its canvas.
        masked: which places of its region are not committed.
    """

    number: Int[Tensor, " rows"]
    session_row: Int[Tensor, " rows"]
    ids: Int[Tensor, "rows length"]
    masked: Bool[Tensor, "rows region"]

    def __len__(self) -> int:
        return len(self.number)

    def at(self, which: Tensor) -> "Rows":
        """Some of these rows, by their places here or by a mask."""
        return Rows(self.number[which], self.session_row[which], self.ids[which], self.masked[which])

    @classmethod
    def joined(cls, several: "Sequence[Rows]") -> "Rows":
        """The rows of several."""
        names = ("number", "session_row", "ids", "masked")
        rows = cls(*(torch.cat([getattr(one, name) for one in several]) for name in names))
        return rows.at(rows.number.argsort())


@dataclass(frozen=True)
class OpenRows:
    """Open rows, and the candidates of their next step.

    Attributes:
        rows: these rows.
        candidates: from the forward on their canvases.
        logits: for each row that forward's logits, and the canvas among those that it ran on; for drawing again.
        editing_steps: how many steps each row has edited since its block was full.
    """

    rows: Rows
    candidates: Candidates
    logits: list[tuple[Tensor, int]]
    editing_steps: Int[Tensor, " rows"]

    def at(self, which: Tensor) -> "OpenRows":
        """Some of these rows, by their places here or by a mask."""
        places = torch.arange(len(self.rows), device=which.device)[which].tolist()
        logits = [self.logits[place] for place in places]
        return OpenRows(self.rows.at(which), self.candidates.at(which), logits, self.editing_steps[which])

    def logits_of(self, which: Int[Tensor, " n"]) -> Float[Tensor, "n window vocab"]:
        """The logits of some of these rows, by their places here."""
        return torch.stack([forward[canvas] for forward, canvas in (self.logits[row] for row in which.tolist())])


@dataclass(frozen=True)
class RowsAfter:
    """Rows after the commits of a step.

    Attributes:
        chosen: the places of the block that were committed.
        rows: the rows.
        unfinished: whether something is left to do in the block.
        complete: whether the row is complete.
    """

    chosen: Bool[Tensor, "rows window"]
    rows: Rows
    unfinished: Bool[Tensor, " rows"]
    complete: Bool[Tensor, " rows"]

    @property
    def open(self) -> Int[Tensor, " open"]:
        """The places of the rows that are still open."""
        return (self.unfinished & ~self.complete).nonzero()[:, 0]

    def at(self, which: Tensor) -> "RowsAfter":
        """Some of these rows."""
        return RowsAfter(self.chosen[which], self.rows.at(which), self.unfinished[which], self.complete[which])
