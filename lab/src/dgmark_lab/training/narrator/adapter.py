"""Low-rank adapters on a Llama, and one forward over clean text and masked copies of its blocks.

A row is a context and a response, both clean, followed by copies of the response in which tokens are masked. Clean
positions attend to the text before them; a position of a copy attends to the clean text before its block, and to its
block in the copy (Arriola et al. 2025, block diffusion). As in Dream, the hidden state at i - 1 predicts position i:
the first position of a block is predicted from clean text alone, as in the base.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from dgmark.errors import CheckpointFormat


class LowRank(nn.Module):
    """A linear layer W plus a trainable B A of low rank (Hu et al. 2022); B starts at zero."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = linear
        self.disabled = False  # whether to compute W x only
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) / math.sqrt(linear.in_features))
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Float[Tensor, "... inner"]) -> Float[Tensor, "... outer"]:
        """Compute W x + B A x."""
        result: Tensor = self.base(x)
        return result if self.disabled else result + functional.linear(functional.linear(x, self.down), self.up)


class AdaptedLlama(nn.Module):
    """A Llama with frozen weights, adapters on all linear layers of its blocks, and a mask embedding."""

    def __init__(self, base: LlamaForCausalLM, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.embedding: nn.Parameter = base.model.embed_tokens.weight
        for block in base.model.layers:
            for part in (block.self_attn, block.mlp):
                for name, layer in list(part.named_children()):
                    if isinstance(layer, nn.Linear):
                        setattr(part, name, LowRank(layer, rank))
        self.mask_vector = nn.Parameter(self.embedding.mean(0).clone())

    def trainable_parameters(self) -> dict[str, nn.Parameter]:
        """Return the trainable parameters by name."""
        return {name: param for name, param in self.named_parameters() if param.requires_grad}

    def adapters(self) -> Iterator[tuple[str, LowRank]]:
        """Yield the adapted layers with their names in the base."""
        for name, module in self.base.named_modules():
            if isinstance(module, LowRank):
                yield name, module

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the trained parameters; the base has a folder of its own."""
        return {name: param.detach() for name, param in self.trainable_parameters().items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], *_: Any, **__: Any) -> Any:
        """Load the trained parameters of another such model.

        Raises:
            CheckpointFormat: the other model had other adapters.
        """
        own = self.state_dict()
        if {name: one.shape for name, one in state_dict.items()} != {name: one.shape for name, one in own.items()}:
            raise CheckpointFormat("the adapters are for another base or rank: give those of the same rank")
        return super().load_state_dict(state_dict, strict=False)

    @torch.no_grad()
    def base_logits(
        self,
        ids: Int[Tensor, "rows length"],
        absent: Int[Tensor, " rows"],
        wanted: Bool[Tensor, "rows length"],
    ) -> Float[Tensor, "wanted vocab"]:
        """Compute the base's logits for tokens, given the tokens before them.

        Args:
            ids: text.
            absent: number of empty positions at the start of each row.
            wanted: positions of the tokens to predict; never a row's first.
        """
        layout = Layout(0, ids.shape[1], 0)
        masked = torch.zeros_like(ids, dtype=torch.bool)
        for _, layer in self.adapters():
            layer.disabled = True
        hidden = self.hidden(ids, masked, layout.positions(), layout.visible(absent, torch.ones_like(absent)))
        for _, layer in self.adapters():
            layer.disabled = False
        return functional.linear(hidden[wanted.roll(-1, 1)], self.embedding)

    def hidden(
        self,
        ids: Int[Tensor, "rows length"],
        masked: Bool[Tensor, "rows length"],
        positions: Int[Tensor, " length"],
        seen: Bool[Tensor, "rows length length"],
    ) -> Float[Tensor, "rows length width"]:
        """Compute hidden states with a given attention mask.

        Args:
            ids: tokens; ignored where masked.
            masked: positions that have the mask embedding instead.
            positions: positions for the rotary embedding.
            seen: which keys (last axis) each query attends to.
        """
        embedded = functional.embedding(ids, self.embedding)
        states: Tensor = self.base.model(
            inputs_embeds=torch.where(masked[..., None], self.mask_vector, embedded),
            attention_mask=seen[:, None],
            position_ids=positions[None],
            use_cache=False,
        ).last_hidden_state
        return states


@dataclass(frozen=True)
class Layout:
    """The layout of rows: tokens of the context, tokens of the response, and how many masked copies of it follow."""

    context: int
    response: int
    copies: int

    def positions(self) -> Int[Tensor, " length"]:
        """Return positions for the rotary embedding: those of a copy equal those of its response."""
        clean = torch.arange(self.context + self.response)
        return torch.cat([clean, clean[self.context :].repeat(self.copies)])

    def visible(self, absent: Int[Tensor, " rows"], block: Int[Tensor, " rows"]) -> Bool[Tensor, "rows length length"]:
        """Return which keys (last axis) each query attends to.

        Args:
            absent: number of empty positions at the start of each row.
            block: block length of each row's response.
        """
        clean = self.context + self.response
        place = self.positions()
        index = torch.arange(len(place))
        copy = torch.where(index < clean, 0, 1 + (index - clean) // self.response)  # 0 for clean text
        number = (place - self.context) // block[:, None]
        until = torch.where(copy == 0, place + 1, self.context + number * block[:, None])
        is_text = (copy == 0) & (index >= absent[:, None])
        in_text = is_text[:, None] & (place < until[:, :, None])
        in_copy = (copy > 0) & (copy == copy[:, None]) & (number[:, :, None] == number[:, None])
        alone = torch.eye(len(place), dtype=torch.bool)  # an empty position has to attend to something
        return in_text | in_copy | alone

    def predictors(self, block: Int[Tensor, " rows"]) -> Int[Tensor, "rows copies response"]:
        """Return the indices of the hidden states that predict the positions of each copy."""
        offset = torch.arange(self.response)
        clean = self.context + offset - 1
        copies = [self.context + self.response * (1 + copy) + offset - 1 for copy in range(self.copies)]
        first = offset[None] % block[:, None] == 0
        return torch.stack([torch.where(first, clean, one) for one in copies], 1)
