"""As much of SGLang as its diffusion algorithms meet: a base class, and a scheduler that fills blocks round by round.

Names, signatures and the order of calls are those of SGLang 0.5.23 (`make engines-check` compares them with the real
package, and runs these tests on its real base class).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from dgmark.models.toy import ToyDenoiser


class DllmAlgorithm:
    """The base class: a step after each forward."""

    supported_architectures: tuple[str, ...] = ()

    def __init__(self, config: Any) -> None:
        self.block_size, self.mask_id = config.block_size, config.mask_id
        self.fdfo = config.first_done_first_out_mode

    def init_step_state(self, forward_batch: Any) -> list[Any]:
        return [None] * forward_batch.batch_size

    def max_steps(self, block_size: int) -> int:
        return block_size + 1

    def step(self, forward_batch: Any, full_logits: Tensor, states: list[Any]) -> list[bool]:
        raise NotImplementedError

    def run(self, model_runner: Any, forward_batch: Any, algo_states: list[Any] | None = None) -> tuple[Any, ...]:
        ids = forward_batch.input_ids.view(forward_batch.batch_size, self.block_size)
        starts = (ids != self.mask_id).sum(1).tolist()
        states = self.init_step_state(forward_batch)
        if self.fdfo:
            for row, carried in enumerate(algo_states or []):
                states[row] = states[row] if carried is None else carried
            out = model_runner.forward(forward_batch, pp_proxy_tensors=None)
            done = self.step(forward_batch, out.logits_output.full_logits, states)
            kept = [None if one else state for one, state in zip(done, states, strict=True)]
            return out.logits_output, ids.tolist(), [self.block_size * one for one in done], kept, False
        out = model_runner.forward(forward_batch, pp_proxy_tensors=None)
        if all(start == self.block_size for start in starts):
            return out.logits_output, [], None, None, False
        for _ in range(self.max_steps(self.block_size)):
            if all(self.step(forward_batch, out.logits_output.full_logits, states)):
                break
            out = model_runner.forward(forward_batch, pp_proxy_tensors=None)
        return out.logits_output, [ids[row, start:] for row, start in enumerate(starts)], None, None, False


@contextmanager
def installed(base: type = DllmAlgorithm) -> Iterator[dict[str, type]]:
    """The modules that a plug-in imports; gives the table of algorithms."""
    algorithms: dict[str, type] = {}
    table, class_of = SimpleNamespace(algo_name_to_cls=algorithms), SimpleNamespace(DllmAlgorithm=base)
    modules: dict[str, Any] = dict.fromkeys(("sglang", "sglang.srt", "sglang.srt.dllm"), SimpleNamespace())
    modules |= {"sglang.srt.dllm.algorithm": table, "sglang.srt.dllm.algorithm.base": class_of}
    with patch.dict(sys.modules, modules):
        yield algorithms


@dataclass
class Req:
    """A request, as the scheduler shows it to an algorithm."""

    rid: str
    origin_input_ids: list[int]
    sampling_params: Any
    output_ids: list[int] = field(default_factory=list)
    block: list[int] = field(default_factory=list)
    done: int = 0  # columns of its finished blocks
    state: Any = None

    @property
    def committed(self) -> list[int]:
        return self.origin_input_ids + self.output_ids

    @classmethod
    def of(cls, rid: str, prompt: list[int], seed: int | None = None, **custom: Any) -> "Req":
        return cls(rid, prompt, SimpleNamespace(custom_params=custom or None, sampling_seed=seed))


class Server:
    """One scheduler process: validates requests, then fills their blocks in batches.

    Args:
        algorithm: the class, as the table of algorithms has it.
        model: reads whole canvases.
        settings: the YAML mapping.
        fdfo: whether a block leaves the batch as soon as it is done.
    """

    def __init__(self, algorithm: Any, model: ToyDenoiser, settings: dict[str, Any], *, fdfo: bool = True) -> None:
        self.model, self.block = model, getattr(model, "block_multiple", None) or 8
        config = SimpleNamespace(
            block_size=self.block, mask_id=model.mask_id, first_done_first_out_mode=fdfo, algorithm_config=settings
        )
        self.algorithm = algorithm(config)
        edits = dict(zip(("delete_token_id", "split_token_id"), getattr(model, "edit_ids", ()), strict=False))
        self.model_config = SimpleNamespace(hf_config=SimpleNamespace(**edits))
        self.steps: list[tuple[str, list[int]]] = []  # the positions that each round committed in a request

    def forward(self, forward_batch: Any, pp_proxy_tensors: None) -> Any:  # noqa: ARG002
        blocks = forward_batch.input_ids.view(-1, self.block).tolist()
        logits = []
        for req, block in zip(forward_batch.reqs, blocks, strict=True):
            canvas = torch.tensor([req.committed[: req.done] + block])
            logits.append(self.model(canvas)[0, -self.block :])
        full_logits = torch.cat(logits).to(torch.float32)
        return SimpleNamespace(logits_output=SimpleNamespace(full_logits=full_logits), can_run_graph=False)

    def serve(self, requests: list[Req], length: int, *, at_once: int = 3) -> dict[str, list[int]]:
        """Decode all requests, a few at a time; each answer has `length` tokens."""
        for req in requests:
            error = self.algorithm.validate_request(req)
            assert error is None, error
        waiting = list(requests)
        running: list[Req] = []
        answers: dict[str, list[int]] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
            self._round(running)
            for req in [one for one in running if len(one.output_ids) >= length]:
                answers[req.rid] = req.output_ids[:length]
                running.remove(req)
        return answers

    def _round(self, running: list[Req]) -> None:
        for req in running:
            if not req.block:
                req.block = (req.committed[req.done :] + [self.model.mask_id] * self.block)[: self.block]
        batch = self._batch(running)
        before = [list(req.block) for req in running]
        _, ids, accepted, states, _ = self.algorithm.run(self, batch, [req.state for req in running])
        blocks = batch.input_ids.view(-1, self.block).tolist()
        for row, req in enumerate(running):
            places = [p for p in range(self.block) if blocks[row][p] != before[row][p]]
            self.steps.append((req.rid, [req.done + p - len(req.origin_input_ids) for p in places]))
            if accepted is not None:
                assert ids[row] == blocks[row]
                req.block, req.state = blocks[row], states[row]
            if accepted is None or accepted[row]:
                assert self.model.mask_id not in blocks[row]
                self._finish(req, blocks[row])

    def _finish(self, req: Req, block: list[int]) -> None:
        known = max(len(req.origin_input_ids) - req.done, 0)
        req.output_ids += block[known:]
        req.done += self.block
        req.block, req.state = [], None

    def _batch(self, running: list[Req]) -> Any:
        positions = [req.done + place for req in running for place in range(self.block)]
        return SimpleNamespace(
            batch_size=len(running),
            input_ids=torch.tensor([token for req in running for token in req.block]),
            positions=torch.tensor(positions, dtype=torch.int32),
            dllm_prompt_mask=None,
            rids=[req.rid for req in running],
            reqs=running,
        )
