"""The decoding loop: blocks left to right, one forward a step, one commit a row and step (paper Alg. 1 and 2).

Knows ids only: no text, no key (it is told what matches), no family of models. Marked and unmarked text come out
of the same lines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.matching import Matching
from dgmark.decode.select import select
from dgmark.decode.strategies import Proposals, propose
from dgmark.models.denoiser import Denoiser, window_of

# Called after each step with the number of rows that committed a token.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Trace:
    """The commits of one row in their order; parallel lists.

    Attributes:
        step: the step (forward) of the commit.
        position: 0-based, from the first generated token.
        token_id: what was committed.
        reward: its reward r_j.
        matched: whether it lay in the position's matching set; always true without a mark.
    """

    step: list[int]
    position: list[int]
    token_id: list[int]
    reward: list[float]
    matched: list[bool]


@dataclass(frozen=True)
class Response:
    """One decoded row: the ids before the end token, whether there was one, and how they came about."""

    token_ids: list[int]
    ended: bool
    trace: Trace


@dataclass
class _Canvas:
    """Rows still being decoded. `row` is each one's index among the prompts."""

    ids: Tensor
    masked: Tensor
    row: Tensor
    prompt_length: int

    def keep(self, wanted: Tensor) -> None:
        self.ids, self.masked, self.row = self.ids[wanted], self.masked[wanted], self.row[wanted]


@torch.inference_mode()
def decode(
    model: Denoiser,
    prompts: Int[Tensor, "batch prompt"],
    config: DecodeConfig,
    matching: Matching,
    seeds: Sequence[int],
    progress: Progress | None = None,
) -> list[Response]:
    """Decode one response a row, all prompts of one length.

    Each row has its own generator, seeded with its own seed: two uniforms a position of the active block and step,
    so what a row draws depends neither on its neighbours nor on what is already committed. A row stops once all
    positions up to an end token are committed.

    Args:
        model: the denoiser.
        prompts: token ids.
        config: decoding settings.
        matching: which candidates match; `everything` for no mark.
        seeds: one a row.
        progress: told the number of commits after each step.
    """
    window = window_of(model)
    ends = torch.tensor(model.end_ids, device=prompts.device, dtype=torch.long)
    forbidden = forbidden_ids(model).to(prompts.device)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    canvas = _new_canvas(prompts, config.length, model.mask_id)
    finished = canvas.ids.clone()
    commits: list[tuple[Tensor, ...]] = []

    for step in range(config.length):
        start = step // config.block_length * config.block_length
        block = slice(start, start + config.block_length)
        positions = torch.arange(block.start, block.stop, device=prompts.device)
        lo, hi = canvas.prompt_length + block.start, canvas.prompt_length + block.stop

        # 1. Candidates and rewards, at the masked positions of the block only.
        logits = window(canvas.ids, lo, hi)
        masked = canvas.masked[:, block]
        uniforms = _uniforms(generators, canvas.row, config.block_length).to(prompts.device)
        tokens, rewards = _spread(masked, propose(logits[masked], uniforms[masked], forbidden, config))

        # 2. The mark: which candidates match. 3. Select and commit.
        matched = matching(tokens, positions)
        chosen = select(rewards, masked, matched, torch.ones_like(canvas.row))
        canvas.ids[:, lo:hi] = torch.where(chosen, tokens, canvas.ids[:, lo:hi])
        canvas.masked[:, block] = masked & ~chosen

        where = chosen.nonzero()[:, 1]
        at = (torch.arange(len(where), device=where.device), where)
        commits.append((canvas.row, torch.full_like(where, step), start + where, tokens[at], rewards[at], matched[at]))
        if progress is not None:
            progress(len(where))

        # 4. Rows that are complete up to an end token leave.
        done = _ended(canvas, ends)
        if done.any():
            finished[canvas.row[done]] = canvas.ids[done]
            canvas.keep(~done)
            if not len(canvas.row):
                break

    finished[canvas.row] = canvas.ids
    responses = finished[:, canvas.prompt_length :].tolist()
    return [
        _response(ids, set(model.end_ids), trace)
        for ids, trace in zip(responses, _traces(commits, len(prompts)), strict=True)
    ]


def forbidden_ids(model: Denoiser) -> Int[Tensor, " f"]:
    """Ids that no position may take: the mask id, and rows of padding that no token stands for."""
    return torch.tensor(sorted({model.mask_id, *range(model.tokenizer.vocab_size, model.vocab_size)}))


def _new_canvas(prompts: Tensor, length: int, mask_id: int) -> _Canvas:
    batch, device = prompts.shape[0], prompts.device
    response = torch.full((batch, length), mask_id, dtype=torch.long, device=device)
    return _Canvas(
        ids=torch.cat([prompts, response], 1),
        masked=torch.ones(batch, length, dtype=torch.bool, device=device),
        row=torch.arange(batch, device=device),
        prompt_length=prompts.shape[1],
    )


def _uniforms(generators: list[torch.Generator], rows: Tensor, block_length: int) -> Tensor:
    draws = [torch.rand(block_length, 2, generator=generators[row], dtype=torch.float64) for row in rows.tolist()]
    return torch.stack(draws)


def _spread(masked: Tensor, proposals: Proposals) -> tuple[Tensor, Tensor]:
    """Candidates and rewards at their places in the block; 0 where nothing is masked."""
    tokens = torch.zeros_like(masked, dtype=torch.long).masked_scatter(masked, proposals.tokens)
    rewards = torch.zeros_like(masked, dtype=proposals.rewards.dtype).masked_scatter(masked, proposals.rewards)
    return tokens, rewards


def _ended(canvas: _Canvas, ends: Tensor) -> Bool[Tensor, " batch"]:
    """Rows with an end token before which nothing is masked."""
    leading = canvas.masked.cumsum(1) == 0
    return (torch.isin(canvas.ids[:, canvas.prompt_length :], ends) & leading).any(1)


def _response(ids: list[int], ends: set[int], trace: Trace) -> Response:
    stop = next((i for i, token in enumerate(ids) if token in ends), None)
    return Response(token_ids=ids[:stop], ended=stop is not None, trace=trace)


def _traces(commits: list[tuple[Tensor, ...]], batch: int) -> list[Trace]:
    row, step, position, token, reward, matched = (torch.cat(column).cpu() for column in zip(*commits, strict=True))
    traces = []
    for index in range(batch):
        mine = row == index
        traces.append(
            Trace(
                step=step[mine].tolist(),
                position=position[mine].tolist(),
                token_id=token[mine].tolist(),
                reward=reward[mine].tolist(),
                matched=matched[mine].tolist(),
            )
        )
    return traces
