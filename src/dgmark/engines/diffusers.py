"""diffusers: a scheduler that marks what `LLaDA2Pipeline` and `DiffusionGemmaPipeline` write.

A step is diffusers' own code, with two changes in rows with a key: masked places draw from the probabilities that keyed
bits have moved, and the scheduler sees an infinite confidence where `mark` commits, and minus infinity where it must
not commit or edit. So random numbers, quotas and noise are those of the ordinary scheduler, and rows without a key are
decided by it alone. Facts from diffusers 0.42.1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dgmark.arguments.checks import several
from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.key_store import KeyStore
from dgmark.decode.steps.proposals import Proposals
from dgmark.engines.core import Block, check_prompt, keyed_logits, mark, mark_edits
from dgmark.errors import MissingExtra, SettingsError, install_hint
from dgmark.watermark.key import WatermarkKey, check_key

try:
    from diffusers import BlockRefinementScheduler
except ImportError as error:
    raise MissingExtra(f"marking in diffusers' pipelines needs diffusers: {install_hint('diffusers')}") from error

_LOWEST = torch.finfo(torch.float32).tiny  # a threshold that every token passes


class MarkingBlockRefinementScheduler(BlockRefinementScheduler):  # type: ignore[misc]
    """diffusers' `BlockRefinementScheduler`, which marks the rows that have a key.

    Make it from the pipeline's own: `MarkingBlockRefinementScheduler.from_config(pipe.scheduler.config, keys=key)`.
    The keys are not part of its configuration, and are never saved with a pipeline.

    Args:
        keys: the key of every row, or a key for each row; None for text without a mark. A key with sub-keys marks each
            row of each call with another sub-key, which the operating system draws. All are of one rule.
        alpha, bias: how keyed draws move probabilities, as in `DecodeConfig`. The pipelines' default temperature is 0,
            where only a bias marks under rule "bigram".
        block_length, num_inference_steps, threshold, editing_threshold, minimal_topk: as in diffusers.

    Attributes:
        rows: the key or sub-key of each row of the last call.

    Raises:
        SettingsError: something else was given for a key. A call of the pipeline raises it for a key that rotates, for
            keys of both rules, for a list with another number of keys than the call has rows, and where the settings
            leave no mark.
        VocabularyMismatch: (a call) a key is of another vocabulary than the model.
        InputError: (a call) the prompt holds the mask.
    """

    def __init__(
        self,
        keys: WatermarkKey | Sequence[WatermarkKey | None] | None,
        alpha: float | None = None,
        bias: float = 0.0,
        block_length: int = 32,
        num_inference_steps: int = 32,
        threshold: float = 0.95,
        editing_threshold: float | None = None,
        minimal_topk: int = 1,
    ) -> None:
        super().__init__(block_length, num_inference_steps, threshold, editing_threshold, minimal_topk)
        self._written: Tensor  # the tokens of the blocks before
        self._last: Tensor  # those of this block, after the last step
        self._start: int | None = None  # the position of the block's first place; None before a text
        self._show: Callable[[Proposals], Tensor] | None = None  # what a step is shown of its confidences
        self._draws: dict[str, Any] = {"alpha": alpha, "bias": bias}
        self.begin(keys)

    def begin(self, keys: WatermarkKey | Sequence[WatermarkKey | None] | None) -> None:
        """Say which keys mark the calls that follow, as the class takes them."""
        self._shared = keys is None or isinstance(keys, WatermarkKey)
        self._given: list[WatermarkKey | None] = several([keys] if self._shared else keys, "keys")
        for key in self._given:
            check_key(key, or_none=True)

    def set_timesteps(
        self, num_inference_steps: int, device: str | torch.device | None = None, block_length: int | None = None
    ) -> None:
        """As in diffusers; a pipeline calls this once, before the first step of its text."""
        super().set_timesteps(num_inference_steps, device, block_length)
        self._start = None

    def step(self, model_output: Tensor, timestep: Any, sample: Any, *, return_dict: bool = True, **named: Any) -> Any:
        """As in diffusers; rows with a key commit matches first, and no edit of theirs loses a match."""
        if self._start is None:
            self._start = self._begin_text(model_output, len(sample), named.get("prompt_mask"))
        elif int(timestep) == 0:
            self._start += sample.shape[1]
            self._written = torch.cat([self._written, self._last], 1)
        if not any(self.rows):
            return super().step(model_output, timestep, sample, return_dict=return_dict, **named)
        mask_id, keys = named.get("mask_token_id"), self._keys
        positions = torch.arange(sample.shape[1], device=sample.device).expand_as(sample) + self._start
        masked, quota = self._due(int(timestep), sample, mask_id)
        if mask_id is not None and self._start < 0:
            check_prompt(masked, positions)
        self._block = Block(masked, positions, keys, self._text_up_to(sample))
        threshold, editing = (
            self.config[name] if named.get(name) is None else named[name] for name in ("threshold", "editing_threshold")
        )
        config = DecodeConfig()
        if threshold < 1:  # no confidence is above 1, so that the quota alone counts
            config = DecodeConfig(commit="threshold", threshold=max(float(threshold), _LOWEST))

        def show(proposals: Proposals) -> Tensor:
            """Choose what the scheduler commits and edits; it is given a confidence by which it does so."""
            candidates, confidence = proposals.tokens, proposals.rewards
            filled = None if mask_id is None else candidates != mask_id  # a mask in place of a mask commits nothing
            commits = mark(proposals, self._block, quota, config=config, readable=filled)
            # the edits that will be made unless they are forbidden here, once these commits are made
            edits = ~masked & (positions >= 0) & (candidates != sample)
            edits &= False if editing is None else confidence > float(editing)
            tokens = self._text_up_to(torch.where(commits, candidates, sample))
            block = Block(masked & ~commits, positions, keys, tokens)
            kept = mark_edits(edits, candidates, block, fixed_shapes=False)
            shown = confidence.masked_fill(~kept, -torch.inf).masked_fill(commits, torch.inf)
            return torch.where(keys.rows[:, None] < 0, confidence, shown)

        self._show = show
        try:
            output: Any = super().step(model_output, timestep, sample, **named)
        finally:
            self._show = None
        output.sampled_probs = self._confidence
        self._last = output.prev_sample
        if mask_id is None:
            output.pred_logits = self._predicted(model_output, output.prev_sample, positions)
            # a pipeline that stops early writes the best tokens, and does not tell the scheduler
            self._last = self._last.masked_fill(self._last != output.pred_logits.argmax(-1), -1)
        return output if return_dict else output.to_tuple()

    step.__wrapped__ = BlockRefinementScheduler.step  # type: ignore[attr-defined] # a pipeline reads the arguments

    def _sample_from_logits(self, logits: Tensor, **named: Any) -> tuple[Tensor, Tensor]:
        if self._show is None:
            drawn: tuple[Tensor, Tensor] = super()._sample_from_logits(logits, **named)
            return drawn
        generator = named["generator"]
        copied = None if generator is None else torch.Generator(generator.device).set_state(generator.get_state())
        with torch.random.fork_rng([logits.device] if logits.is_cuda else []):
            keyed = self._keyed(logits, **{**named, "generator": copied})
        candidates, self._confidence = super()._sample_from_logits(logits, **named)
        proposals = Proposals(candidates, self._confidence.float(), self._confidence.float())
        if keyed is not None:
            at = self._block.masked & (self._keys.rows >= 0)[:, None]
            pairs = zip(keyed, (proposals.tokens, proposals.rewards, proposals.scores), strict=True)
            proposals = Proposals(*(torch.where(at, mine, other) for mine, other in pairs))
            self._confidence = proposals.rewards
        return proposals.tokens, self._show(proposals)

    def _keyed(self, logits: Tensor, **named: Any) -> tuple[Tensor, Tensor, Tensor] | None:
        """Tokens from keyed draws with the scheduler's random numbers, and their probabilities before and after."""
        config = DecodeConfig(temperature=0.0, **self._draws)
        if named["temperature"] and named["use_multinomial"]:
            filters: dict[str, Any] = {"top_k": named["top_k"] or None, "top_p": named["top_p"]}
            config = DecodeConfig(temperature=float(named["temperature"]), **filters, **self._draws)
        self._keys.side.check_config(config)
        if self._block.keyed(config) is None:
            return None
        before, after = keyed_logits(logits, self._block, config)
        plain = {"temperature": 0.0 if config.greedy else 1.0, "top_k": None, "top_p": None}
        tokens, scores = super()._sample_from_logits(after, **{**named, **plain})
        return tokens, before.exp().gather(-1, tokens[..., None])[..., 0], scores

    def _begin_text(self, logits: Tensor, rows: int, prompt_mask: Tensor | None) -> int:
        """Choose the keys of the rows, and say at which position the first block starts; the prompt may end in it."""
        keys = self._given * rows if self._shared else self._given
        if len(keys) != rows:
            raise SettingsError(
                f"the scheduler has {len(keys)} keys and this call {rows} rows: give `begin` one key for all rows, or "
                "a list with a key or None for each"
            )
        self.rows = [None if key is None else key.for_text() for key in keys]
        self._keys = KeyStore(self.rows, logits.shape[-1], logits.device, rows).of(self.rows)
        self._written = self._last = logits.new_empty(rows, 0, dtype=torch.long)
        return 0 if prompt_mask is None else -int(prompt_mask.sum())

    def _due(self, step: int, sample: Tensor, mask_id: int | None) -> tuple[Tensor, Tensor | int]:
        """The places that are not committed, and how many of each row diffusers' schedule commits at this step."""
        if mask_id is not None:
            if self._transfer_schedule is None:
                raise SettingsError("call set_timesteps before the first step of a text, as the pipelines do")
            return sample == mask_id, int(self._transfer_schedule[min(step, len(self._transfer_schedule) - 1)])
        committed = torch.zeros_like(sample, dtype=torch.bool) if step == 0 else self._committed
        due = -(-(step + 1) * sample.shape[1] // self.num_inference_steps)
        return ~committed, (due - committed.sum(1)).clamp(min=0)

    def _text_up_to(self, block: Tensor) -> Tensor:
        """The tokens of the blocks before, and of this one."""
        return torch.cat([self._written, block], 1)

    def _predicted(self, logits: Tensor, canvas: Tensor, positions: Tensor) -> Tensor:
        """The logits, with a committed token as the best one wherever the best one would lose its match.

        When `DiffusionGemmaPipeline` stops early, it writes the best tokens over those that were committed.
        """
        best = logits.argmax(-1)
        block = Block(~self._committed, positions, self._keys, self._text_up_to(canvas))
        replaced = self._committed & (best != canvas)
        lost = replaced & ~mark_edits(replaced, best, block, fixed_shapes=False)
        if not lost.any():
            return logits
        row, place = lost.nonzero(as_tuple=True)
        mine, other = (row, place, canvas[lost]), (row, place, best[lost])
        swapped = logits.clone()
        swapped[mine], swapped[other] = logits[other], logits[mine]
        return swapped
