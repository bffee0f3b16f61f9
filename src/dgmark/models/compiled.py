"""Compiling the forward of a network: what sessions call, in place, with static shapes.

The first forward of each shape compiles, which takes a minute or so. A decode has few shapes: one for each number of
rows, and with a prefix cache one for each block. Knows no session and no decode.
"""

import warnings
from typing import Any

import torch
from transformers import PreTrainedModel

from dgmark.checkpoint.folder import first_line

# of one network: torch's own limit is 8, after which it would run as it is, without a word in a script
_SHAPES = 256


def compile_network(network: PreTrainedModel, backend: Any = "inductor") -> bool:
    """Compile a network in place, and say whether it is compiled; one that cannot be stays as it is, with a warning.

    Sessions call the decoder inside the network, and its output matrix apart, so `torch.compile(network)` would change
    nothing. The backend is as `torch.compile` takes it.
    """
    spread = set(map(str, (getattr(network, "hf_device_map", None) or {}).values()))
    if len(spread) > 1:
        return _left(network, f"it is spread over {len(spread)} devices")
    config = torch._dynamo.config
    try:
        probe = torch.compile(lambda values: values + 1, backend=backend, dynamic=False)
        probe(torch.zeros(8, device=network.device))  # asks for the compiler, which the network does at its first call
        config.recompile_limit = max(config.recompile_limit, _SHAPES)
        config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, _SHAPES)
        network.base_model.compile(backend=backend, dynamic=False)
    except Exception as error:  # what a backend needs differs: a C++ compiler, Triton, a version of Python
        return _left(network, first_line(getattr(error, "inner_exception", error)))
    return True


def _left(network: PreTrainedModel, why: str) -> bool:
    warnings.warn(
        f"{type(network).__name__} is not compiled, and runs as it is: {why}", stacklevel=3, category=UserWarning
    )
    return False
