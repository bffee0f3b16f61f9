"""The bits of pairs on every device: numpy, the operations of torch, and the kernel of Triton in its interpreter."""

import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from dgmark.decode.marks.pair_signs import in_torch, pair_signs, pair_signs_on
from dgmark.watermark.bigram import matching_pairs
from dgmark.watermark.hashes import SipHashKey
from support.fresh_process import run_fresh

RNG = np.random.default_rng(1)
CPU = torch.device("cpu")
KERNEL = "dgmark.decode.marks.siphash_kernel"


def numbers(*shape: int) -> Tensor:
    return torch.from_numpy(RNG.integers(-(2**63), 2**63, shape))


def given(*shape: int) -> tuple[Tensor, ...]:
    """Words of pairs, a row for each of their parts, and the keys of three rows, the last of which has no number."""
    rows = torch.from_numpy(RNG.integers(0, 3, (*shape[:1], *[1] * (len(shape) - 1))))
    return numbers(*shape) & (1 << 48) - 1, rows, numbers(3), numbers(3), torch.tensor([0, 200, -1])


def one_by_one(words: Tensor, rows: Tensor, first: Tensor, second: Tensor, number: Tensor) -> list[int]:
    """The signs of each word, in a loop."""
    keys = [SipHashKey(*key) for key in zip(first.tolist(), second.tolist(), strict=True)]
    pairs = zip(words.reshape(-1, 1).numpy(), rows.expand_as(words).reshape(-1).tolist(), strict=True)
    return [1 if matching_pairs(word, keys[row], int(number[row]))[0] else -1 for word, row in pairs]


@pytest.mark.parametrize("shape", [(1,), (300,), (5, 3, 7), (0, 4)])
def test_numpy_and_torch_give_pairs_the_same_bits(shape: tuple[int, ...]) -> None:
    some = given(*shape)
    expected = one_by_one(*some)
    for found in (pair_signs(*some), in_torch(*some)):
        assert found.shape == shape
        assert found.reshape(-1).tolist() == expected


def test_the_kernel_gives_pairs_the_same_bits(tmp_path: Path) -> None:
    """Triton's interpreter runs it on the CPU."""
    pytest.importorskip("triton")
    torch.save([given(300), given(5, 3, 7), given(0, 4)], tmp_path / "given.pt")
    code = f"""
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton.language
from dgmark.decode.marks import pair_signs, siphash
siphash.tl = triton.language  # which the interpreter looks for in the module of each function
from dgmark.decode.marks.siphash_kernel import in_one_kernel
for given in torch.load({str(tmp_path / "given.pt")!r}):
    assert torch.equal(in_one_kernel(*given), pair_signs.in_torch(*given))
assert pair_signs.pair_signs_on(torch.device("cpu")) is in_one_kernel
"""
    run_fresh(code)


def test_the_kernel_compiles_for_a_gpu() -> None:
    """Which need not be there; the interpreter runs more than the compiler takes."""
    pytest.importorskip("triton")
    code = """
import os
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # of which Triton 3.9 warns, for numbers that are not here
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from dgmark.decode.marks.siphash_kernel import _kernel
types = {name: "*i64" for name in ("words", "rows", "first", "second", "number")}
types |= {"signs": "*i8", "count": "i32", "each": "i32"}
constants = {"c0": 1, "c1": 2**62, "c2": 3, "c3": 4, "length": 2**59, "size": 256}
source = ASTSource(_kernel, types | dict.fromkeys(constants, "constexpr"), constants)
print(len(compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]))
"""
    assert int(run_fresh(code)) > 1000


@pytest.mark.parametrize(
    ("module", "why"),
    [(None, "import of"), (Mock(in_one_kernel=lambda *some: -in_torch(*some)), "its kernel gave other bits")],
    ids=["no Triton", "wrong bits"],
)
def test_a_device_without_a_kernel_takes_the_operations_of_torch(
    module: Mock | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, KERNEL, module)
    with pytest.warns(UserWarning, match=f"marked texts take longer.*{why}"):
        assert pair_signs_on.__wrapped__(CPU) is in_torch


def test_a_compiled_step_holds_the_operation() -> None:
    torch.library.opcheck(pair_signs, given(5, 3, 7))
