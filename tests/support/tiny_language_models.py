"""Tiny random language models: checkpoints of those that paraphrase (a T5 in DIPPER's layout, a causal one), and a
Llama that sees both sides, also as a denoiser.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tokenizers
import torch
from tokenizers import models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.models.denoiser import CacheMode, Session
from dgmark.models.sessions.bidirectional import BidirectionalSession
from dgmark.models.toy import ToyDenoiser

WORDS = [f"w{number}" for number in range(40)]
SPECIAL = ["<pad>", "</s>", "<unk>"]
CHAT = "{% for message in messages %}{{ message['content'] }} {% endfor %}w39"


def bidirectional_llama(vocab_size: int, heads: int, layers: int, spread: float, seed: int) -> LlamaForCausalLM:
    """A Llama with grouped queries, in double precision."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=8 * heads, intermediate_size=12 * heads, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads // 2, initializer_range=spread,
    )  # fmt: skip
    config.is_causal = False
    network: LlamaForCausalLM = LlamaForCausalLM(config).train(False).double()
    network.model.rotary_emb.double()
    return network


_TOY = ToyDenoiser()


@dataclass(frozen=True)
class TinyNetwork:
    """A random bidirectional Llama in double precision, with the toy's vocabulary and the library's sessions."""

    mask_id: int = 0
    end_ids: tuple[int, ...] = ()
    vocab_size: int = _TOY.vocab_size
    context_length: int = 64

    @cached_property
    def network(self) -> LlamaForCausalLM:
        return bidirectional_llama(self.vocab_size, heads=2, layers=2, spread=0.6, seed=11)

    @property
    def tokenizer(self) -> Tokenizer:
        return _TOY.tokenizer

    def session(self, cache: CacheMode, padding: Tensor | None = None) -> Session:
        assert padding is None
        return BidirectionalSession(self.network, cache)

    def __call__(self, ids: Tensor) -> Tensor:
        return self.session("none").begin(ids, 0, ids.shape[1])


def write_t5(folder: Path) -> Path:
    """A T5 of the first version 1.1: gated GELU, output matrix of its own."""
    torch.manual_seed(0)
    config = T5Config(  # type: ignore[call-arg]
        vocab_size=43, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    network = T5ForConditionalGeneration(config)
    network.lm_head.weight.data *= 0.02  # at random it would say one word for ever
    network.generation_config.suppress_tokens = [0, 1, 2]  # words alone, up to the greatest length
    network.save_pretrained(folder)
    _write_tokenizer(folder)
    return folder


def write_causal(folder: Path, chat: bool) -> Path:
    """A Llama, with or without a chat template."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=43, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=1024, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    _write_tokenizer(folder, CHAT if chat else None)
    return folder


def _write_tokenizer(folder: Path, chat: str | None = None) -> None:
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *WORDS])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(SPECIAL)
    backend.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>",
        **({"chat_template": chat} if chat else {}),
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
