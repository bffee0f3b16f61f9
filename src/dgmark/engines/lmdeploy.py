"""LMDeploy: an unmasking processor for SDAR in its PyTorch engine.

LMDeploy draws the tokens (each request's temperature and filters hold) and commits as its own settings say; this
processor takes matches first. Neither a request's id nor the length of its prompt reaches that place, so one key marks
every answer, and positions count from the start of the prompt. The tokens before the block do not reach it either, so
keys of rule "bigram" are refused. Facts from LMDeploy 0.18.0.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from dgmark.decode.keyed_rules import KeyStore, rule_class
from dgmark.decode.proposals import Proposals
from dgmark.engines.core import Block, mark
from dgmark.engines.policy import STEP_SETTINGS, Policy
from dgmark.errors import SettingsError

# states of a place, as in lmdeploy.pytorch.consts
_MASKED, _UNMASKED = 0, 1


def install(settings: Mapping[str, Any]) -> None:
    """Mark what every engine writes that this process makes from now on.

    Args:
        settings: see `Policy.of`; how it commits is LMDeploy's own, so of those of `DecodeConfig` only
            `min_relative_reward` may be given.

    Raises:
        SettingsError: a setting is invalid, or has no meaning here.
        KeyFileError: a key file cannot be read.
    """
    from lmdeploy.pytorch.strategies.dllm import model_agent, unmasking

    policy = _checked(settings)
    model_agent.UnmaskingProcessor = type("DgMark", (LMDeployMarking, unmasking.UnmaskingProcessor), {"policy": policy})
    original = model_agent.DLLMModelAgentStrategy.post_sampling

    @wraps(original)
    def post_sampling(self: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        self.unmasking_processor.starts = inputs.history_lengths + inputs.seq_length - self.block_size
        return original(self, inputs, *rest, **named)

    model_agent.DLLMModelAgentStrategy.post_sampling = post_sampling


class LMDeployMarking:
    """The processor without its base class, which only LMDeploy has; its base calls the method of each strategy.

    Attributes:
        policy: the key and the smallest relative reward.
        starts: the absolute position at which each row's block begins.
    """

    policy: Policy
    starts: Tensor
    dllm_config: Any
    _store: KeyStore | None = None

    def low_confidence_static(self, logits: Tensor, token_ids: Tensor, dllm_mask: Tensor) -> Tensor:
        """A fixed number of commits in each step."""
        quota = self._get_denoise_num()  # type: ignore[attr-defined]
        return self._committed(logits, token_ids, dllm_mask, {"commit": "quota"}, quota)

    def low_confidence_dynamic(self, logits: Tensor, token_ids: Tensor, dllm_mask: Tensor) -> Tensor:
        """Every match above LMDeploy's threshold, at least one commit."""
        settings = {"commit": "threshold", "threshold": self.dllm_config.confidence_threshold}
        return self._committed(logits, token_ids, dllm_mask, settings, 1)

    def sequential(self, dllm_mask: Tensor) -> Tensor:  # noqa: ARG002
        """Refused.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(
            "the unmasking strategy sequential commits from left to right, so there is no choice to mark: "
            "use low_confidence_dynamic or low_confidence_static"
        )

    def _committed(
        self, logits: Tensor, token_ids: Tensor, dllm_mask: Tensor, settings: dict[str, Any], quota: int
    ) -> Tensor:
        """The states of all places after this step; everything is flat, block after block."""
        if self._store is None:
            self._store = self.policy.store(logits.shape[-1], logits.device)
        shape = (-1, self.dllm_config.block_length)
        chosen = logits.gather(-1, token_ids[:, None])[:, 0].float()
        confidence = (chosen - logits.float().logsumexp(-1)).exp().view(shape)
        candidates, masked = token_ids.view(shape), (dllm_mask == _MASKED).view(shape)
        positions = self.starts.to(candidates.device)[:, None] + torch.arange(shape[1], device=candidates.device)
        keys = self._store.of([self.policy.keys[self.policy.default]] * len(candidates))
        config = replace(self.policy.config, **settings)
        proposals = Proposals(candidates, confidence, confidence)
        commits = mark(proposals, Block(masked, positions, keys), quota, config=config)
        return torch.where(commits.view(-1), _UNMASKED, dllm_mask)


def _checked(settings: Mapping[str, Any]) -> Policy:
    own = [name for name in STEP_SETTINGS if name in settings and name != "min_relative_reward"]
    if own:
        raise SettingsError(f"LMDeploy has its own {', '.join(own)}: set them there")
    policy = Policy.of({"policy": "enforce", **settings})
    if not policy.enforce:
        raise SettingsError("LMDeploy shows no request to its unmasking, so none can opt out: use policy enforce")
    key = policy.keys[policy.default]
    if rule_class([key]).reads_neighbours:
        raise SettingsError(
            "LMDeploy shows its unmasking neither the tokens before the block nor where the answer begins, so a key of "
            "rule bigram cannot mark: use a key of rule position"
        )
    return replace(policy, keys={policy.default: key})  # no other marks, whatever the folder holds
