"""A second device on the CPU: its tensors meet no tensor of the CPU, and each wait for their values is counted.

Its tensors claim the device "meta" and hold a tensor of the CPU, on which each operation runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")
# of an operation on values of the device: what it gives, or its size, is on the host
WAITING = {
    "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique_consecutive", "_unique2",
    "unique_dim", "allclose",
}  # fmt: skip
# takes indices, which may be masks or on the CPU
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
COPIES = {"_to_copy", "copy_"}


class Far(Tensor):
    """A tensor of the other device."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> "Far":
        """Claim the tensor for the other device."""
        far: Far = Tensor._make_wrapper_subclass(
            cls, near.shape, strides=near.stride(), storage_offset=near.storage_offset(), dtype=near.dtype,
            device=DEVICE,
        )  # fmt: skip
        far.near = near
        return far

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Refuse what happens outside of `OtherDevice`."""
        raise AssertionError(f"{func} is called on the other device outside of its mode")


class OtherDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, there is the other device.

    Attributes:
        waits: the operations that waited for it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []
        self._counts = True

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Count no waits, as in the model."""
        self._counts = False
        yield
        self._counts = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation on the CPU, and count it if it waits."""
        kwargs = kwargs or {}
        composite = func.decompose(*args, **kwargs) if func.has_kernel_for_dispatch_key(_IMPLICIT) else NotImplemented
        if composite is not NotImplemented:
            return composite
        tensors = list[Tensor]()
        _each(Tensor, tensors.append, (args, kwargs))
        far, name = any(isinstance(one, Far) for one in tensors), func.__name__.split(".")[0]
        to = kwargs.get("device")
        if self._waits(name, args, kwargs, far) and self._counts:
            self.waits.append(str(func))
        if name not in COPIES | INDEXED and far:
            strangers = [one for one in tensors if not isinstance(one, Far) and one.dim()]
            assert not strangers, f"{func} has arguments on two devices"
        near_args, near_kwargs = _each(Far, lambda one: one.near, (args, kwargs))
        if to is not None:
            near_kwargs = {**near_kwargs, "device": torch.device("cpu")}
        found = func(*near_args, **near_kwargs)
        if name.endswith("_") and not name.startswith("__"):
            return args[0]
        if name in {"_local_scalar_dense", "equal", "is_nonzero"} or not (far if to is None else to == DEVICE):
            return found
        return _each(Tensor, Far, found)

    def _waits(self, name: str, args: Any, kwargs: Any, far: bool) -> bool:
        """Whether a device would keep the host waiting."""
        if name in COPIES:
            source = args[1] if name == "copy_" else args[0]
            there = isinstance(args[0], Far) if name == "copy_" else kwargs.get("device") == DEVICE
            if isinstance(source, Far) and (name == "copy_" or kwargs.get("device") is not None) and not there:
                return True
            blocking = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
            return there and not isinstance(source, Far) and blocking and source.dim() > 0
        if not far:
            return False
        if name in INDEXED:
            indices = [one for one in args[1] if one is not None]
            return any(one.dtype == torch.bool or not isinstance(one, Far) for one in indices)
        return name in WAITING or (name == "repeat_interleave" and "output_size" not in kwargs)


def _each(kind: type, change: Callable[[Any], Any], value: Any) -> Any:
    """The value with each tensor of a kind replaced, within lists, tuples and dictionaries; torch's own is slow."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(_each(kind, change, one) for one in value)
    if isinstance(value, dict):
        return {name: _each(kind, change, one) for name, one in value.items()}
    return value


_IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd
