"""The keyed bits of pairs as one kernel of Triton, which is imported where a CUDA device asks for it."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dgmark.decode.marks.siphash import siphash_rounds
from dgmark.watermark.hashes import INITIAL, LENGTH

_WORDS_AT_ONCE = 256
_rounds = triton.jit(siphash_rounds)


def in_one_kernel(words: Tensor, rows: Tensor, first: Tensor, second: Tensor, number: Tensor) -> Tensor:
    """What `pair_signs` says."""
    words, rows = words.contiguous(), rows.contiguous()
    signs = torch.empty_like(words, dtype=torch.int8)
    count, grid = words.numel(), (triton.cdiv(words.numel(), _WORDS_AT_ONCE),)
    with torch.cuda.device_of(words):  # type: ignore[no-untyped-call] # Triton launches on the current device
        given = words, rows, first, second, number, signs, count, count // max(1, rows.numel())
        _kernel[grid](*given, *INITIAL, LENGTH, _WORDS_AT_ONCE)
    return signs


# fmt: off
@triton.jit(do_not_specialize=["count", "each"])  # type: ignore[untyped-decorator] # each value would compile again
def _kernel(  # type: ignore[no-untyped-def]
    words, rows, first, second, number, signs, count, each,
    c0: tl.constexpr, c1: tl.constexpr, c2: tl.constexpr, c3: tl.constexpr, length: tl.constexpr, size: tl.constexpr,
):
    # fmt: on
    """`size` of the words, of which a row has `each`."""
    at = tl.program_id(0) * size + tl.arange(0, size)
    inside = at < count
    row = tl.maximum(tl.load(rows + at // each, mask=inside, other=0), 0)
    one, two, subkey = tl.load(first + row), tl.load(second + row), tl.load(number + row)
    # as `matching_pairs`, whose names Triton does not see
    word = tl.load(words + at, mask=inside, other=0) | subkey >> 6 << 48
    hashes = _rounds(word, one ^ c0, two ^ c1, one ^ c2, two ^ c3, length)
    tl.store(signs + at, 2 * (hashes >> (subkey & 63) & 1) - 1, mask=inside)
