"""A toy denoiser for tests: no weights, a vocabulary that fits on a screen, logits that anybody can recompute.

Every logit depends on every token of the canvas and on its place, so a decoder that commits a wrong token, a wrong
position or in a wrong order gives a different text. It is part of the package, so that people who call dgmark from
their own loop or engine can test it without a model.
"""

from dataclasses import dataclass, field
from functools import cache, cached_property

import tokenizers
import torch
from jaxtyping import Float, Int
from tokenizers import AddedToken, models, pre_tokenizers
from torch import Tensor

from dgmark.checkpoint.tokenizer import Tokenizer, wrap

MASK_TOKEN = "<|mdm_mask|>"  # noqa: S105 (a token of text, no password)
END_TOKEN = "<|endoftext|>"  # noqa: S105

_PRIME = 2**31 - 1
_CANVAS, _POSITION, _TOKEN = 48271, 69621, 39373


@dataclass(frozen=True)
class ToyDenoiser:
    """A `Denoiser` whose logits are pseudo-random numbers computed from the canvas in exact integer arithmetic.

    With P = 2**31 - 1, the canvas x gives the digest D = sum_j (x_j + 1) * 48271**j + seed (mod P); position i and
    token v give h = D + 69621 * i + 39373 * v, mixed by two rounds of h <- h**3 + h + 1 (mod P); the logit is
    `spread * (h / P - 1/2)`, plus the bias of the token. So neither batch size nor device changes a bit of a row.
    Id 0 is the mask, id 1 ends a response; the words "w0", "w1", ... follow, then rows of padding without a token.

    Attributes:
        words: number of words in the vocabulary.
        padding: number of rows of the logits beyond the tokenizer's vocabulary.
        seed: seed of the logits; a different seed is a different model.
        spread: difference between the highest and the lowest logit; 0 makes all tokens equally likely.
        end_bias: added to the logit of the end token; higher means shorter texts.
        forbidden_bias: added to the logits of the mask and of the padding, which a decoder must not commit.
        end_ids: ids that end a response; () for a model that never stops.
        context_length: largest number of positions in a canvas.
        dtype: number format of the logits; torch.bfloat16 rounds them, which makes ties.
        device: the device of the ids.
        name: the model's name in results.
    """

    words: int = 24
    padding: int = 6
    seed: int = 0
    spread: float = 8.0
    end_bias: float = 0.0
    forbidden_bias: float = 0.0
    end_ids: tuple[int, ...] = (1,)
    context_length: int = 512
    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    name: str = "toy"

    @property
    def mask_id(self) -> int:
        """The id of a position not yet committed."""
        return 0

    @property
    def vocab_size(self) -> int:
        """Padded vocabulary: mask, end, words and padding."""
        return 2 + self.words + self.padding

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Words split at spaces."""
        vocabulary = {MASK_TOKEN: 0, END_TOKEN: 1, **{f"w{word}": 2 + word for word in range(self.words)}}
        backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))  # noqa: S106
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.add_special_tokens([AddedToken(token, normalized=False) for token in (MASK_TOKEN, END_TOKEN)])
        return wrap(backend, self.name)

    def __call__(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits of every position, each from the whole canvas."""
        length = ids.shape[1]
        digest = ((ids + 1) * torch.tensor(_powers(length)).to(ids.device) % _PRIME).sum(1) + self.seed
        position = _POSITION * torch.arange(length, device=ids.device)
        token = _TOKEN * torch.arange(self.vocab_size, device=ids.device)
        mixed = (digest[:, None, None] + position[:, None] + token).remainder_(_PRIME)
        for _ in range(2):  # in place, as most of the time would go into memory
            mixed = (mixed * mixed).remainder_(_PRIME).mul_(mixed).add_(mixed).add_(1).remainder_(_PRIME)
        logits = mixed.to(torch.float64).div_(_PRIME).sub_(0.5).mul_(self.spread).add_(self._bias.to(ids.device))
        return logits.to(self.dtype)

    @cached_property
    def _bias(self) -> Tensor:
        bias = torch.zeros(self.vocab_size, dtype=torch.float64)
        bias[[self.mask_id, *range(2 + self.words, self.vocab_size)]] = self.forbidden_bias
        bias[1] = self.end_bias
        return bias


@cache
def _powers(length: int) -> list[int]:
    return [pow(_CANVAS, j, _PRIME) for j in range(length)]
