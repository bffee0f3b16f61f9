"""dlmserve: an OpenAI-compatible server for LLaDA, with the mark.

`python -m dgmark.engines.dlmserve dgmark.toml` starts it. dlmserve refuses fields that it does not know, so a request
says what it wants in headers. The id of the answer is that of the request (header X-Request-ID, or drawn by dlmserve).
Facts from dlmserve 0.1.1.
"""

import sys
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.matching import GroupStore
from dgmark.engines.core import mark, propose_block, uniform_draws
from dgmark.engines.policy import MARK, PAYLOAD, Policy, number_of, refuse, rows_of, seed_of
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey

_TRUE, _FALSE = ("true", "1"), ("false", "0")


@dataclass(frozen=True)
class _Request:
    """What a step must know of a request: its key, and the seed of its draws."""

    key: WatermarkKey | None
    seed: int = 0


# the request whose handler runs
_asked: ContextVar[_Request | None] = ContextVar("_asked", default=None)
# the requests of the batch that is decoded, and the column at which their answers begin
_batch: ContextVar[tuple[list[_Request], int]] = ContextVar("_batch")


def install(settings: Mapping[str, Any]) -> None:
    """Mark what dlmserve writes in this process; call it once, before its server starts.

    Args:
        settings: see `Policy.of`. The temperature is that of each request, and a step commits as many tokens as
            dlmserve's schedule says, so `temperature`, `commit`, `threshold` and `factor` are refused.

    Raises:
        SettingsError: a setting is invalid, or has no meaning here.
        KeyFileError: a key file cannot be read.
    """
    refuse(settings, ["temperature"], "dlmserve takes the {} from each request: leave it out")
    refuse(
        settings,
        ["commit", "threshold", "factor"],
        "dlmserve gives each block a fixed number of steps, and a rule that finds its own number of tokens would leave "
        "masks in the answer: leave {} out, and set num_denoising_steps in the request",
    )
    marked = _Marked(Policy.of(settings))
    from dlmserve import denoise_loop, engine
    from dlmserve.api import server

    begin, step, request_id = denoise_loop.init_state, engine.step_batch, server._request_id

    def init_state(prompt: Tensor, params: Any, mask_id: int) -> Any:
        request, marked.mask_id = marked.starting(params), mask_id
        state = begin(prompt, params, mask_id=mask_id)
        state.dgmark = request
        _batch.set(([request] * len(prompt), state.prompt_len))  # for `denoise`, which decodes it alone
        return state

    def step_batch(model: Any, states: list[Any], *rest: Any, **named: Any) -> None:
        _batch.set(([state.dgmark for state in states], max(state.prompt_len for state in states)))
        step(model, states, *rest, **named)

    def asked(request: Any) -> str:
        rid: str = request_id(request)
        _asked.set(marked.asked(request.headers, rid))
        return rid

    denoise_loop.init_state = engine.init_state = init_state
    denoise_loop.commit_top_k_by_confidence = marked.commit
    engine.step_batch, server._request_id = step_batch, asked


class _Marked:
    """The functions that take the place of dlmserve's own."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._store: GroupStore | None = None
        self.mask_id = -1  # dlmserve tells it with the first request

    def asked(self, headers: Mapping[str, str], rid: str) -> _Request:
        """What a request asks for in its headers; what is wrong with them goes back to the client as a 400."""
        try:
            return _Request(self._policy.key_of(_fields(headers), rid))
        except SettingsError as error:
            raise _refusal(str(error)) from error

    def starting(self, params: Any) -> _Request:
        """The request that is about to start; one without a handler, as in a script, gets a sub-key at random."""
        request = _asked.get() or _Request(self._policy.keys[self._policy.default].for_text())
        if params.use_local_leap and request.key is not None:
            raise _refusal("LocalLeap commits neighbours whether they match or not: leave use_local_leap out")
        try:
            self._rule(params.temperature)
        except SettingsError as error:
            raise _refusal(str(error)) from error
        return _Request(request.key, seed_of("", params.seed))

    def _rule(self, temperature: float) -> DecodeConfig:
        rule = {**self._policy.config.to_dict(), "temperature": temperature}
        if temperature == 0:
            rule["top_k"] = None  # it is for the requests that sample
        return DecodeConfig(**rule)

    def commit(
        self,
        x: Tensor,
        logits: Tensor,
        mask_index: Tensor,
        k_per_row: Tensor,
        block_end_abs: Tensor | int | None = None,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,  # noqa: ARG002 (the draws follow from the request)
    ) -> Tensor:
        """Commit one step; the arguments and the result are those of dlmserve's commit_top_k_by_confidence."""
        if self._store is None:
            self._store = self._policy.store(logits.shape[-1], logits.device)
        requests, start = _batch.get()
        config = self._rule(temperature)
        columns = torch.arange(start, x.shape[1], device=x.device)
        ends = torch.as_tensor(x.shape[1] if block_end_abs is None else block_end_abs, device=x.device)
        masked = mask_index[:, start:] & (columns < ends.reshape(-1, 1))
        positions = (columns - start).expand_as(masked)
        draws = uniform_draws(rows_of([one.seed for one in requests], x), masked.sum(1), positions)
        forbidden = torch.full((1,), self.mask_id, dtype=torch.long, device=x.device)
        candidates, confidence = propose_block(logits[:, start:], forbidden, config, draws)
        keys = self._store.of([one.key for one in requests])
        chosen = mark(confidence, masked, candidates, positions, keys, k_per_row.reshape(-1), config=config)
        return torch.cat([x[:, :start], torch.where(chosen, candidates, x[:, start:])], 1)


def _fields(headers: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a request from its headers: `dgmark`, `dgmark-key`, `dgmark-payload`."""
    fields: dict[str, Any] = {}
    for name, text in headers.items():
        field = name.lower().replace("-", "_")
        if not field.startswith(MARK):
            continue
        fields[field] = text
        if field == MARK and text.lower() in (*_TRUE, *_FALSE):
            fields[field] = text.lower() in _TRUE
        if field == PAYLOAD:
            fields[field] = number_of(text)
    return fields


def _refusal(detail: str) -> Exception:
    from fastapi import HTTPException

    return HTTPException(status_code=400, detail=detail)


def main() -> None:
    """Start dlmserve with the settings of a TOML file."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m dgmark.engines.dlmserve SETTINGS.toml [options of dlmserve]")
    install(tomllib.loads(Path(sys.argv.pop(1)).read_text(encoding="utf-8")))
    from dlmserve.api.server import main as serve

    serve()


if __name__ == "__main__":
    main()
