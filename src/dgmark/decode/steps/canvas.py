"""Input and output of a decode: canvases, the commits of each step as events of its rows, and responses with traces."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor
from torch.nn.functional import pad

from dgmark.models.denoiser import BlockOrigin, Denoiser

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
# Called after each step with the number of tokens that the step committed.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Canvas:
    """The input of a decode: rows that share one layout.

    Attributes:
        ids: prompt and masks, or a text with holes.
        start: first column of the region, which is cut into blocks.
        masked: which places of the region are to be filled.
        positions: the position of each place, as the mark counts them.
        stops: whether a row ends with the first end token; if not, no end token is ever committed.
        padding: number of padding columns at the left of each row; None for no padding.
        forbidden: ids that are never committed here, beside those that no canvas takes.
    """

    ids: Int[Tensor, "batch length"]
    start: int
    masked: Bool[Tensor, " region"]
    positions: Int[Tensor, " region"]
    stops: bool = True
    padding: Int[Tensor, " batch"] | None = None
    forbidden: frozenset[int] = frozenset()

    @classmethod
    def after(cls, prompts: Int[Tensor, "batch prompt"], length: int, mask_id: int) -> "Canvas":
        """Make a canvas from prompts of one length, each followed by `length` masks."""
        response = prompts.new_full((prompts.shape[0], length), mask_id)
        return cls(
            ids=torch.cat([prompts, response], 1),
            start=prompts.shape[1],
            masked=torch.ones(length, dtype=torch.bool, device=prompts.device),
            positions=torch.arange(length, device=prompts.device),
        )

    @classmethod
    def with_holes(cls, ids: list[int], holes: list[int], mask_id: int) -> "Canvas":
        """Make a canvas from a text whose tokens at the places `holes` (ascending, not empty) are to be written.

        The region goes from the first hole to the last, and positions are counted from the text's first token. No end
        token is ever written.
        """
        row = torch.tensor([ids], dtype=torch.long)
        row[0, holes] = mask_id
        start, stop = holes[0], holes[-1] + 1
        masked = torch.zeros(stop - start, dtype=torch.bool)
        masked[[place - start for place in holes]] = True
        return cls(ids=row, start=start, masked=masked, positions=torch.arange(start, stop), stops=False)

    @classmethod
    def joined(cls, canvases: "Sequence[Canvas]", mask_id: int) -> "Canvas":
        """Join canvases of one `layout`; those with a shorter beginning are padded at the left (with masks)."""
        start = max(canvas.start for canvas in canvases)
        missing = [start - canvas.start for canvas in canvases for _ in canvas.ids]
        padded = [pad(canvas.ids, (start - canvas.start, 0), value=mask_id) for canvas in canvases]
        padding = torch.tensor(missing) if any(missing) else None
        return replace(canvases[0], ids=torch.cat(padded), start=start, padding=padding)

    def in_whole_blocks(self, block_length: int, origin: BlockOrigin, mask_id: int) -> "Canvas":
        """The same with masks up to the end of its last block, which a decode with insertions fills as a whole.

        Args:
            block_length: positions in a block.
            origin: where blocks are counted from.
            mask_id: the id of a position that is not committed.
        """
        length = len(self.masked)
        missing = -(length + (self.start if origin == "canvas" else 0)) % block_length
        positions = torch.arange(length + missing, device=self.positions.device)
        masked = pad(self.masked, (0, missing), value=True)
        return replace(self, ids=pad(self.ids, (0, missing), value=mask_id), masked=masked, positions=positions)

    @property
    def text(self) -> tuple[int, int]:
        """The columns [first, stop) that are read as one text: a response without its prompt, a filled text whole."""
        return self.start if self.stops else 0, self.ids.shape[1]

    @property
    def layout(self) -> tuple[int, bytes, bytes, bool, frozenset[int]]:
        """What rows must share to be joined: the length after `start`, masked places, positions, what is written."""
        places = (self.masked.numpy(force=True).tobytes(), self.positions.numpy(force=True).tobytes())
        return self.ids.shape[1] - self.start, *places, self.stops, self.forbidden

    def to(self, device: torch.device) -> "Canvas":
        """The same canvas on another device."""
        return replace(
            self,
            ids=self.ids.to(device),
            masked=self.masked.to(device),
            positions=self.positions.to(device),
            padding=None if self.padding is None else self.padding.to(device),
        )


Operation = Literal["write", "delete", "split"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


def replayed(
    values: Iterable[T], operations: Iterable[Operation], positions: Iterable[int], written: Iterable[T], blank: T
) -> list[T]:
    """Carry out operations on a list, one after the other.

    Args:
        values: the list before them; it goes on with blanks.
        operations: "write" puts a value in a position, "delete" takes a position out, "split" inserts a blank one.
        positions: the position of each, in the list with those before it.
        written: the value of each; deletions and insertions take none.
        blank: what is not written.
    """
    done = list(values)
    for operation, position, value in zip(operations, positions, written, strict=True):
        done.extend([blank] * (position + 1 - len(done)))
        if operation == "write":
            done[position] = value
        elif operation == "delete":
            del done[position]
        else:
            done.insert(position, blank)
    return done


@dataclass(frozen=True)
class Trace:
    """The commits of one row in the order they were made, as parallel lists; a position that comes again was edited.

    Attributes:
        step: the step of the commit; steps that commit several tokens at once have several entries.
        position: 0-based, from the first generated token; of the text with the commits before it.
        token_id: the committed token; of a deletion or an insertion the id by which the model asked for it.
        reward: the token's reward r_j, by the model alone.
        matched: whether the token was in the position's matching set; under rule "bigram", whether more of the new
            pairs that its draw saw match than do not. Always true without a mark.
        had_choice: whether there was a choice, which is where a mark can be: at its draw, other tokens had a
            probability of 1e-4 or more together. Where the order of commits carries the mark, whether more places were
            masked than the step filled.
        operation: "write"; or "delete", which takes the position out, and "split", which inserts a masked position
            there, so that all behind it move by one. `replayed` carries them out.
    """

    step: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    token_id: list[int] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    matched: list[bool] = field(default_factory=list)
    had_choice: list[bool] = field(default_factory=list)
    operation: list[Operation] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Whether a token was deleted or inserted, so that others moved."""
        return self.operation.count("write") < len(self.operation)

    def to_dict(self) -> dict[str, list[Any]]:
        """The lists by name; without `operation` where all write."""
        return {name: values for name, values in vars(self).items() if self.moves or name != "operation"}

    def choices(self, stop: int | None = None) -> int:
        """How many tokens, of those before the position `stop`, had a choice; of edited ones, the last edit counts."""
        if self.moves:
            return sum(replayed([], self.operation, self.position, self.had_choice, blank=False)[:stop])
        last = dict(zip(self.position, self.had_choice, strict=True))
        return sum(choice for position, choice in last.items() if stop is None or position < stop)


def extend_trace(trace: Trace, later: Trace, after: int = 0) -> None:
    """Add later commits to a trace; their steps are counted from `after`."""
    trace.step.extend(step + after for step in later.step)
    for name in ("position", "token_id", "reward", "matched", "had_choice", "operation"):
        getattr(trace, name).extend(getattr(later, name))


@dataclass(frozen=True)
class Response:
    """One decoded row: the ids before the end token, whether there was an end token, and the trace of the commits."""

    token_ids: list[int]
    ended: bool
    trace: Trace


@dataclass(frozen=True)
class Commits:
    """The commits and edits of one step in all rows, on the CPU.

    Attributes:
        step: number of the step.
        block: number of the block.
        row: the row of each commit.
        place: the place in the region of each commit.
        token: the token of each commit.
        reward: the reward of each commit.
        matched: whether each token matched, as in `Trace`.
        edited: whether each replaces a token that was committed before.
        had_choice: whether each had a choice, as in `Trace`.
        finished: rows that this step completed.
        forwards: number of canvases run through the model since the previous commits.
        stop: the place in the region at which the block ends.
        operation: what each does, as its number in `OPERATIONS`; None if all write. Those of a row are carried out one
            after the other: a place is that of the text with the operations before it.
    """

    step: int
    block: int
    row: Int[Tensor, " commits"]
    place: Int[Tensor, " commits"]
    token: Int[Tensor, " commits"]
    reward: Tensor
    matched: Bool[Tensor, " commits"]
    edited: Bool[Tensor, " commits"]
    had_choice: Bool[Tensor, " commits"]
    finished: Int[Tensor, " finished"]
    forwards: int
    stop: int
    operation: Int8[Tensor, " commits"] | None = None


# --- the events of rows ---


@dataclass(frozen=True)
class Committed:
    """The commits of one step in one row, as parallel lists; see `Trace`.

    An edited token replaces the one that was committed at its position before; a deletion takes it out.
    """

    row: int
    step: int
    positions: list[int]
    token_ids: list[int]
    rewards: list[float]
    matched: list[bool]
    edited: list[bool]
    operations: list[Operation]


@dataclass(frozen=True)
class BlockFinished:
    """In these rows, nothing in the block of this number or before it will change any more.

    Attributes:
        rows: the rows.
        block: the number of the block.
        stop: the number of places that it ends at; in text around holes, places are counted from the first hole.
    """

    rows: list[int]
    block: int
    stop: int


@dataclass(frozen=True)
class Completed:
    """A complete row, before its text is decoded."""

    row: int
    response: Response


class BatchEvents:
    """Turns the commits of a batch into the events of its rows.

    Args:
        canvas: the canvas of the batch.
        numbers: the number that events give each row.
        ends: ids that end a response.
    """

    def __init__(self, canvas: Canvas, numbers: Sequence[int], ends: tuple[int, ...]) -> None:
        self._numbers, self._ends = numbers, set(ends) if canvas.stops else set()
        self._region = canvas.ids[:, canvas.start : canvas.start + len(canvas.masked)].cpu().clone().numpy()
        self._positions = canvas.positions.cpu().numpy()
        self._traces = [Trace() for _ in numbers]
        self._unfinished = set(range(len(numbers)))
        self._block = self._stop = 0

    def of(self, commits: Commits) -> Iterator[Committed | BlockFinished | Completed]:
        """The events of one step; the commits of each step are given once, in order."""
        if commits.block != self._block:
            yield BlockFinished([self._numbers[row] for row in sorted(self._unfinished)], self._block, self._stop)
            self._block = commits.block
        self._stop = commits.stop
        if commits.operation is None:
            self._region[commits.row.numpy(), commits.place.numpy()] = commits.token.numpy()
        yield from self._by_row(commits)
        for row in commits.finished.tolist():
            self._unfinished.discard(row)
            ids = self._region[row].tolist()
            if commits.operation is not None:  # which fill the last block up, beyond the region
                trace = self._traces[row]
                ids = replayed([], trace.operation, trace.position, trace.token_id, blank=-1)[: len(ids)]
            stop = next((place for place, token in enumerate(ids) if token in self._ends), None)
            yield Completed(self._numbers[row], Response(ids[:stop], stop is not None, self._traces[row]))

    def _by_row(self, commits: Commits) -> Iterator[Committed]:
        """One event for each row of a step, which is added to the row's trace."""
        rows = commits.row.tolist()
        place, operation = commits.place.numpy(), commits.operation
        position = self._positions[place] if operation is None else place
        operations = [0] * len(rows) if operation is None else operation.tolist()
        given = (position, commits.token, commits.reward, commits.matched, commits.had_choice, commits.edited)
        columns: list[list[Any]] = [
            *(values.tolist() for values in given),
            [OPERATIONS[number] for number in operations],
        ]
        for row in dict.fromkeys(rows):
            mine = [index for index, other in enumerate(rows) if other == row]
            positions, tokens, rewards, matched, choice, edited, made = (
                [column[index] for index in mine] for column in columns
            )
            trace = Trace([commits.step] * len(mine), positions, tokens, rewards, matched, choice, made)
            extend_trace(self._traces[row], trace)
            yield Committed(self._numbers[row], commits.step, positions, tokens, rewards, matched, edited, made)


def collect_steps(model: Denoiser, canvas: Canvas, steps: Iterable[Commits]) -> Generator[int, None, list[Response]]:
    """Run the steps of a decode, yield how many tokens each commits, and return the response of each row."""
    events = BatchEvents(canvas, range(len(canvas.ids)), model.end_ids)
    responses: dict[int, Response] = {}
    for commits in steps:
        responses.update({event.row: event.response for event in events.of(commits) if isinstance(event, Completed)})
        yield len(commits.row) - sum(commits.edited.tolist())
    return [responses[row] for row in range(len(canvas.ids))]


def run_to_end(steps: Generator[int, None, T], progress: Progress | None = None) -> T:
    """What steps return in the end; `progress` is called with what each yields, the number of its tokens."""
    while True:
        try:
            tokens = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if progress is not None:
            progress(tokens)


def mapped(steps: Generator[S, None, T], function: Callable[[S], R]) -> Generator[R, None, T]:
    """The steps with a function's value in place of each; they return what they returned."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        yield function(step)


def collect(model: Denoiser, canvas: Canvas, steps: Iterable[Commits]) -> list[Response]:
    """Run the steps of a decode and return the response of each row."""
    return run_to_end(collect_steps(model, canvas, steps))
