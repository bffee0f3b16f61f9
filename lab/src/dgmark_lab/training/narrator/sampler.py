"""Sampling of many texts from a Llama at once, on a CPU.

transformers' `generate` copies the keys and values of all texts at every token. Here they stay in place, and texts
that have ended leave the batch.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import LlamaForCausalLM

from dgmark_lab.training.narrator.config import Sampling


def odds(
    logits: Float[Tensor, "texts vocab"], used: Bool[Tensor, "texts vocab"], how: Sampling
) -> tuple[Int[Tensor, "texts k"], Float[Tensor, "texts k"]]:
    """Return (the most likely tokens, their odds up to a factor).

    Args:
        logits: logits of the next token.
        used: tokens that are in each text.
        how: penalty, temperature, top-k and top-p, applied in this order.
    """
    lowered = torch.where(logits > 0, logits / how.penalty, logits * how.penalty)
    best = (torch.where(used, lowered, logits) / how.temperature).topk(how.top_k, -1)
    chances = best.values.softmax(-1)
    return best.indices, chances * (chances.cumsum(-1) - chances < how.top_p)


class BatchSampler:
    """Samples texts from one network.

    Args:
        network: a Llama, in float32.
        end_ids: tokens that end a text.
        sampling: how to draw a token.
    """

    def __init__(self, network: LlamaForCausalLM, end_ids: frozenset[int], sampling: Sampling) -> None:
        self._network, self._end_ids, self._sampling = network.train(False), torch.tensor(sorted(end_ids)), sampling

    @torch.inference_mode()
    def sample(self, prompts: list[list[int]], length: int, generator: torch.Generator) -> list[list[int]]:
        """Sample a text after each prompt, with its end token unless `length` cuts it."""
        longest = max(map(len, prompts))
        absent = torch.tensor([longest - len(prompt) for prompt in prompts])
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        state = _State(self._network, absent, longest + length)
        texts: list[list[int]] = [[] for _ in prompts]
        alive = torch.arange(len(prompts))
        used = torch.zeros(len(prompts), self._network.config.vocab_size, dtype=torch.bool)
        logits = state.forward(ids)
        while True:
            likely, chances = odds(logits, used, self._sampling)
            tokens = likely.gather(1, torch.multinomial(chances, 1, generator=generator))[:, 0]
            for place, token in zip(alive.tolist(), tokens.tolist(), strict=True):
                texts[place].append(token)
            going = ~torch.isin(tokens, self._end_ids)
            if not going.any() or state.filled == longest + length - 1:
                return texts
            used[torch.arange(len(tokens)), tokens] = True
            if not going.all():
                alive, tokens, used = alive[going], tokens[going], used[going]
                state.keep(going)
            logits = state.forward(tokens[:, None])


class _State:
    """Keys and values of the texts of a batch; texts are padded on the left."""

    def __init__(self, network: LlamaForCausalLM, absent: Int[Tensor, " texts"], length: int) -> None:
        config: Any = network.config
        self._model: Any = network.model
        self._network, self._absent = network, absent
        self._heads, self._groups, self._size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        shape = (config.num_hidden_layers, 2, len(absent), self._groups, length, self._size)
        self._kept = torch.zeros(shape)
        self.filled = 0

    def keep(self, rows: Bool[Tensor, " texts"]) -> None:
        """Keep these texts only."""
        self._kept, self._absent = self._kept[:, :, rows], self._absent[rows]

    def forward(self, ids: Int[Tensor, "texts new"]) -> Float[Tensor, "texts vocab"]:
        """Compute the logits after the last of the new tokens."""
        stop = self.filled + ids.shape[1]
        place = torch.arange(self.filled, stop)
        positions = (place - self._absent[:, None]).clamp(min=0)
        keys = torch.arange(stop)
        seen = (keys <= place[:, None]) & ((keys >= self._absent[:, None])[:, None] | (keys == place[:, None]))
        states = self._model.embed_tokens(ids)
        rotary = self._model.rotary_emb(states, positions)
        bias = torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))[:, None, None]
        for number, block in enumerate(self._model.layers):
            mixed = self._attention(block.self_attn, block.input_layernorm(states), rotary, bias, number, stop)
            states = states + mixed
            states = states + block.mlp(block.post_attention_layernorm(states))
        self.filled = stop
        logits: Tensor = self._network.lm_head(self._model.norm(states[:, -1]))
        return logits

    def _attention(
        self, part: Any, x: Tensor, rotary: tuple[Tensor, Tensor], bias: Tensor, number: int, stop: int
    ) -> Tensor:
        rows, new = x.shape[:2]
        query = _rotate(part.q_proj(x).view(rows, new, self._heads, self._size), rotary)
        kept_keys, kept_values = self._kept[number]
        kept_keys[:, :, stop - new : stop] = _rotate(
            part.k_proj(x).view(rows, new, self._groups, -1), rotary
        ).transpose(1, 2)
        kept_values[:, :, stop - new : stop] = part.v_proj(x).view(rows, new, self._groups, -1).transpose(1, 2)
        keys, values = kept_keys[:, :, :stop], kept_values[:, :, :stop]
        # heads that share keys are stacked: one product for all of them, and no copies of the keys
        query = query.view(rows, new, self._groups, -1, self._size).permute(0, 2, 3, 1, 4).flatten(2, 3)
        scores = (query @ keys.transpose(2, 3)).view(rows, self._groups, -1, new, stop) * self._size**-0.5 + bias
        mixed = (scores.softmax(-1).flatten(2, 3) @ values).view(rows, self._groups, -1, new, self._size)
        result: Tensor = part.o_proj(mixed.permute(0, 3, 1, 2, 4).reshape(rows, new, -1))
        return result


def _rotate(x: Float[Tensor, "texts new heads size"], rotary: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = (part[:, :, None] for part in rotary)
    left, right = x.chunk(2, -1)
    rotated: Tensor = x * cosine + torch.cat([-right, left], -1) * sine
    return rotated
