"""LLaDA 2.2 in LLaDA 2's network, whose tensors have the same names: another choice of experts, that of a block.

Each block of positions admits some experts, the same for all its positions, and a position uses its best ones of these
(technical report of LLaDA 2.2, equation 1). Blocks are counted from the start of the canvas, as in attention, and the
sessions compute whole blocks. The groups of experts that config.json still states are unused.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from transformers import Glm4MoeConfig
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeMoE, Glm4MoeTopkRouter

from dgmark.checkpoint.families import LLADA22
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import Architecture
from dgmark.models.families.llada2 import NAMES, RENAMINGS, SUPPORTED, Llada2Network, glm4_moe_config


class BlockRouter(Glm4MoeTopkRouter):
    """Chooses the experts of positions among those that their block admits.

    For the logits of position t and expert e, s = sigmoid(logit), and r = s + bias chooses: a block admits the
    `expert_capacity` experts with the highest maximum of r over its positions, and a position uses its best of these by
    r, weighted by s, normalised and scaled. Of equal experts the lower number goes first. All is computed in fp32.
    """

    def __init__(self, config: Glm4MoeConfig) -> None:
        super().__init__(config)
        self.block, self.capacity = config.block_size, config.expert_capacity

    def forward(
        self, hidden: Float[Tensor, "batch columns width"]
    ) -> tuple[Float[Tensor, "positions experts"], Float[Tensor, "positions k"], Int[Tensor, "positions k"]]:
        """The logits, and for each position of each row the weights and numbers of its experts.

        Two positions make a block, which admits two of four experts; a position uses one of them:

            r of the positions    .9 .2 .8 .1 and .3 .4 .6 .5
            maximum               .9 .4 .8 .5, which admits experts 0 and 2
            used                  0 and 2
        """
        logits = functional.linear(hidden.float(), self.weight.float())
        scores = logits.sigmoid()
        ranked = scores + self.e_score_correction_bias
        blocks = ranked.view(len(hidden), -1, self.block, self.num_experts)
        admitted = _best(blocks.amax(2, keepdim=True), self.capacity)
        barred = torch.ones_like(blocks[:, :, :1], dtype=torch.bool).scatter(-1, admitted, False)
        chosen = _best(blocks.masked_fill(barred, -torch.inf), self.top_k).view(-1, self.top_k)
        weights = scores.view(-1, self.num_experts).gather(1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.routed_scaling_factor
        return logits.view(-1, self.num_experts), weights, chosen


def _best(values: Float[Tensor, "*any experts"], count: int) -> Int[Tensor, "*any count"]:
    """The numbers of the highest values; of equals the lower number, which topk does not promise."""
    return values.sort(dim=-1, descending=True, stable=True).indices[..., :count]


class Llada22Network(Llada2Network):  # type: ignore[no-untyped-call]
    """LLaDA 2's network with the routers of blocks."""

    def __init__(self, config: Glm4MoeConfig) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            if isinstance(layer.mlp, Glm4MoeMoE):
                layer.mlp.gate = BlockRouter(config)


register_checkpoint_conversion_mapping(
    Llada22Network.__name__,
    get_checkpoint_conversion_mapping(Llada2Network.__name__),  # type: ignore[no-untyped-call]
    overwrite=True,
)


def block_routed_config(checkpoint: Checkpoint) -> Glm4MoeConfig:
    """LLaDA 2.2's configuration for its network; a block must admit as many experts as a position uses."""
    capacity, used = checkpoint.require("expert_capacity", "num_experts_per_tok")
    if type(capacity) is not int or capacity < used:
        raise CheckpointFormat(
            f"{checkpoint.folder}: expert_capacity is {capacity!r}, but each position uses {used} of the experts that "
            "its block admits; fetch the checkpoint again"
        )
    block = LLADA22.block_of(checkpoint)
    return glm4_moe_config(
        checkpoint, NAMES, SUPPORTED, n_group=1, topk_group=1, expert_capacity=capacity, block_size=block
    )


ARCHITECTURE = Architecture(LLADA22, block_routed_config, lambda _: Llada22Network, RENAMINGS)
