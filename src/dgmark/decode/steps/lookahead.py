"""The lookahead: a step tries several commits, and makes the one after which the most candidates match.

Paper, "Top-k one-step lookahead". The winner's forward is that of the next step, so a lookahead of k costs k forwards a
step. Only an order by matches has something to compare (rule position).
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.steps.open_rows import OpenRows, RowsAfter
from dgmark.decode.steps.proposals import Candidates
from dgmark.decode.steps.selection import Choice, alternatives
from dgmark.models.host import on_host, true_on_host


@runtime_checkable
class Steps(Protocol):
    """What a lookahead asks of the decoding loop."""

    def in_block(self, masked: Tensor) -> Tensor:
        """The places of the active block, of an array over the region."""

    def committed(self, open_rows: OpenRows, chosen: Tensor, unsettled: Tensor, row: Tensor | None = None) -> RowsAfter:
        """The rows once the candidates at the chosen places are committed."""

    def read_ahead(self, after: RowsAfter, which: Tensor) -> OpenRows:
        """Some of the rows after a step, with the candidates of a forward on their canvases."""

    def redraw_all(self, open_rows: OpenRows, which: Tensor) -> OpenRows:
        """The rows with all candidates of some of them drawn again, from the same logits."""


def step_with_lookahead(
    config: DecodeConfig, steps: Steps, open_rows: OpenRows, choice: Choice, unsettled: Bool[Tensor, " rows"]
) -> tuple[RowsAfter, Candidates, OpenRows]:
    """Commit in each row the set of places after which the most candidates match; the first of equals.

    The canvases that are tried are in the order of the rows, those of a row the best first. For example, two rows of
    which one chooses among three sets of places, and the other has a single one:

        sets of places     row 0: A, B, C     row 1: D
        canvases           A   B   C   D
        row                0   0   0   1
        first              0           3      (of each row, among the canvases)

    The host waits twice: for which sets there are, and for how many candidates match after each.

    Args:
        config: the decoding settings.
        steps: the loop.
        open_rows: the open rows, with their candidates.
        choice: how the step chooses among places; `width` says among how many sets.
        unsettled: rows that have something left to do in the block even if it is full.

    Returns:
        The rows after the step and its candidates, as the host read them; and the rows that are still open, with
        the candidates of their next step.
    """
    masked = steps.in_block(open_rows.rows.masked)
    sets, exists = alternatives(open_rows.candidates.scores, masked, choice, config.lookahead)
    row = torch.arange(len(exists)).repeat_interleave(exists.shape[1])
    committed = steps.committed(open_rows, sets.flatten(0, 1), unsettled, row)
    tried, read, (exists,) = committed.read(open_rows.candidates, exists)
    at = exists.view(-1).nonzero()[:, 0]
    tried, row, counts = tried.at(at), row[at], exists.sum(1)
    first, has_choice = counts.cumsum(0) - counts, counts > 1
    # a complete row needs no forward, unless it is compared with others
    needed = true_on_host(tried.unfinished & ~(tried.complete & ~has_choice[row].numpy()))
    if not len(needed):
        return tried.at(first), read, open_rows.at(needed)
    ahead = steps.read_ahead(tried, needed)
    winner = first + _best(steps, exists, needed, ahead)
    after = tried.at(winner)
    still = after.open
    still_open = ahead.at(torch.searchsorted(needed, winner[still]))
    again = has_choice[still].nonzero()[:, 0]
    if len(again) and not (config.noise == "fixed" or config.greedy):
        still_open = steps.redraw_all(still_open, again)
    return after, read, still_open


def _best(
    steps: Steps, exists: Bool[Tensor, "rows k"], needed: Int[Tensor, " read"], ahead: OpenRows
) -> Int[Tensor, " rows"]:
    """The rank of each row's canvas with the most matches ahead, of those that were read; the first of equals."""
    score = torch.full_like(exists, -1, dtype=torch.long)
    row, rank = exists.nonzero(as_tuple=True)
    matches = ahead.candidates.matched & steps.in_block(ahead.rows.masked)
    (score[row[needed], rank[needed]],) = on_host(matches.sum(1))
    return score.argmax(1)
