"""The keyed bits of pairs in tensors, as one operation of torch: `dgmark::pair_signs`.

A device takes longer to launch an operation than to compute its numbers, so CUDA launches one kernel of Triton
(`siphash_kernel.py`). Without Triton, and on other devices, the same rounds are some 300 operations; on the CPU numpy
computes them.
"""

import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from dgmark.checkpoint.folder import first_line
from dgmark.decode.marks.siphash import siphash_of_tensors
from dgmark.watermark.bigram import matching_pairs
from dgmark.watermark.hashes import STEP


def in_torch(words: Tensor, rows: Tensor, first: Tensor, second: Tensor, number: Tensor) -> Tensor:
    """1 or -1 for the bit of each pair, 1 or 0, under the key of its row.

    Args:
        words: the pairs as `pair_words`.
        rows: the row of each pair, or one row for each part of the words; -1 gives any bits.
        first: the first half of each row's hash key.
        second: the second half.
        number: the number of each row's sub-key.
    """
    key = first[rows], second[rows]
    return 2 * matching_pairs(words, key, number[rows], siphash_of_tensors).view(torch.int8) - 1


pair_signs = torch.library.custom_op("dgmark::pair_signs", in_torch, mutates_args=())


@pair_signs.register_kernel("cpu")
def _(words: Tensor, rows: Tensor, *held: Tensor) -> Tensor:
    first, second, number = (values.numpy()[rows.numpy()] for values in held)
    return torch.from_numpy(2 * matching_pairs(words.numpy(), (first, second), number).view(np.int8) - 1)


@pair_signs.register_kernel("cuda")
def _(words: Tensor, rows: Tensor, *held: Tensor) -> Tensor:
    return pair_signs_on(words.device)(words, rows, *held)


@pair_signs.register_fake
def _(words: Tensor, *_: Tensor) -> Tensor:
    return words.new_empty(words.shape, dtype=torch.int8)


@cache
def pair_signs_on(device: torch.device) -> Callable[..., Tensor]:
    """What computes `pair_signs` on a CUDA device, compiled and compared with the operations of torch.

    A step that is captured may do neither, so a decode side asks for it when it is made.
    """
    number = torch.arange(2048, device=device)
    mixed = number * STEP  # of both signs
    words, rows = mixed.view(2, 8, 128) & (1 << 48) - 1, number[:2, None, None]
    given = words, rows, mixed[2:4], mixed[4:6], number[199:201]
    try:
        from dgmark.decode.marks.siphash_kernel import in_one_kernel

        if not torch.equal(in_one_kernel(*given), in_torch(*given)):
            raise RuntimeError("its kernel gave other bits")
    except Exception as error:  # no Triton, no C compiler, a device that it does not know
        why = first_line(error)
        warnings.warn(f"marked texts take longer on this GPU, as Triton's fast hash does not work: {why}", stacklevel=2)
        return in_torch
    return in_one_kernel
