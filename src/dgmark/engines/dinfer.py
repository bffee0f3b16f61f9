"""dInfer: a parallel decoder for its block-wise loops.

dInfer shows its decoder the canvas and the block, and no request; rows that are done may leave a batch unannounced. So
`begin` says which key marks all rows of the next `generate`. Facts from dInfer fce4e32.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.key_store import KeyStore
from dgmark.decode.steps.draws import uniform_draws
from dgmark.engines.core import Block, check_prompt, mark, propose_block
from dgmark.engines.policy import rows_of
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey


def marked_decoder(config: DecodeConfig, *, mask_id: int, eos_id: int, tempered: bool = False) -> "DInferMarking":
    """A decoder to make dInfer's `BlockWiseDiffusionLLM` and its relatives with.

    Args:
        config: the settings: strategy, temperature, top_k, alpha, bias, commit, threshold and
            min_relative_reward are read. Commit "quota" commits one token a step.
        mask_id: the model's mask.
        eos_id: the model's end token, which dInfer reads from its decoder.
        tempered: take confidences from the sampled distribution (LLaDA 2) instead of the model's own (LLaDA).
    """
    from dinfer.decoding.parallel_strategy import ParallelDecoder

    decoder: DInferMarking = type("DgMark", (DInferMarking, ParallelDecoder), {})(config.temperature, mask_id=mask_id)
    decoder.eos_id, decoder.config, decoder.tempered = eos_id, config, tempered
    decoder.threshold = config.threshold  # some loops of dInfer lower it from step to step
    return decoder


class DInferMarking:
    """The decoder without its base class, which only dInfer has."""

    mask_id: int
    eos_id: int
    config: DecodeConfig
    tempered: bool
    threshold: float
    _key: WatermarkKey | None = None
    _start: int | None = None
    _seed: int = 0
    _store: KeyStore | None = None

    def begin(self, key: WatermarkKey | None, prompt_length: int, seed: int = 0) -> None:
        """Say what the next `generate` decodes.

        Args:
            key: the key or sub-key of every row; None for no mark.
            prompt_length: tokens of the prompt, padding included. For models with shifted logits (Dream), which dInfer
                decodes one column to the left, give one less.
            seed: the seed of its draws.
        """
        if key != self._key:
            self._store = None
        self._key, self._start, self._seed = key, prompt_length, seed

    def decode(
        self, logits: Tensor, block_start: int, block_end: int, x: Any, iter_threshold: float | None = None
    ) -> None:
        """Commit in one block, in place; a row with nothing left to commit stays as it is."""
        if self._start is None:
            raise SettingsError("call begin(key, prompt_length) before dInfer's generate")
        if self._store is None:
            self._store = KeyStore([self._key], logits.shape[-1], logits.device, slots=1)
            self._store.side.check_config(self.config)
        tokens: Tensor = x[:, min(max(self._start, 0), block_start) : block_end]
        block: Tensor = x[:, block_start:block_end]
        config = self.config
        if iter_threshold is not None and config.commit == "threshold":
            config = replace(config, threshold=iter_threshold)
        masked = block == self.mask_id
        positions = torch.arange(block_start - self._start, block_end - self._start, device=block.device)
        positions = positions.expand(len(block), -1)
        if block_start < self._start:
            check_prompt(masked, positions)
        draws = uniform_draws(rows_of([self._seed + row for row in range(len(block))], block), masked.sum(1), positions)
        forbidden = torch.full((1,), self.mask_id, dtype=torch.long, device=block.device)
        keys = self._store.of([self._key] * len(block))
        shown = Block(masked, positions, keys, tokens)
        proposals = propose_block(logits, forbidden, config, draws, block=shown, tempered=self.tempered)
        chosen = mark(proposals, shown, config=config)
        x[:, block_start:block_end] = torch.where(chosen, proposals.tokens.to(block.dtype), block)
