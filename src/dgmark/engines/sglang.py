"""SGLang: the decoding algorithm `DgMark` for LLaDA 2, SDAR and SDAR-MoE, as a plug-in.

SGLang calls `register` in each of its processes (entry point `sglang.srt.plugins`). Its scheduler shows every request
to `validate_request`; the model runner's `step` then finds the request by its id. Facts from SGLang 0.5.23.
"""

import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgmark.decode.marks.key_store import KeyStore
from dgmark.decode.steps.draws import uniform_draws
from dgmark.engines.core import Block, mark, propose_block
from dgmark.engines.policy import Policy, rows_of, seed_of
from dgmark.errors import DgmarkError, SettingsError
from dgmark.watermark.key import WatermarkKey

NAME = "DgMark"
# that of SGLang's own LowConfidence
_THRESHOLD = 0.95
# tokens before a block that a step is shown: a pair farther back may give its bit again
_TOKENS_BEFORE = 256


def register() -> None:
    """Offer `--dllm-algorithm DgMark`; SGLang's plug-in loader calls this."""
    from sglang.srt.dllm.algorithm import algo_name_to_cls
    from sglang.srt.dllm.algorithm.base import DllmAlgorithm

    algo_name_to_cls[NAME] = type(NAME, (SGLangMarking, DllmAlgorithm), {})


@dataclass(frozen=True)
class _Request:
    """What a step must know of a request.

    Attributes:
        key: the key that marks it; None if it opted out.
        start: the absolute position of its first generated token.
        seed: the seed of its draws.
        req: SGLang's own object, which has the tokens of the finished blocks; None for a row that fills a graph.
    """

    key: WatermarkKey | None
    start: int
    seed: int
    req: "weakref.ref[Any] | None" = None

    def last(self, count: int) -> list[int]:
        """The last generated tokens of the finished blocks, with -1 before the first."""
        req = None if self.req is None else self.req()
        return ([-1] * count + ([] if req is None else list(req.output_ids[-count:])))[-count:]


_UNMARKED = _Request(None, 0, 0)


def _edit_ids(config: Any) -> list[int]:
    """The ids by which LLaDA 2.2 deletes and inserts, as its config.json states them; they are no tokens of a text."""
    names = ("delete_token_id", "split_token_id")
    ids = [value for name in names if (value := getattr(config, name, None)) is not None]
    if len(ids) == 1 or not all(type(value) is int for value in ids):
        raise SettingsError(
            f"config.json of the model states {ids} as {' and '.join(names)}: fetch the checkpoint again"
        )
    return ids


class SGLangMarking:
    """The algorithm without its base class, which only SGLang has; the methods are those of its `DllmAlgorithm`.

    A step takes, at each masked place of each block, the model's token and its confidence, and commits what `mark`
    chooses. A block is reported done one forward after its last commit, so that its keys and values are those of its
    final tokens. LLaDA 2.2 is decoded without its insertions and deletions.
    """

    supported_architectures = ("LLaDA2MoeModelLM", "SDARForCausalLM", "SDARMoeForCausalLM")
    # requests by their id, for as long as SGLang keeps them
    _requests: ClassVar["weakref.WeakValueDictionary[str, _Request]"] = weakref.WeakValueDictionary()
    _policy: ClassVar[Policy | None] = None
    _mask: ClassVar[int | None] = None

    block_size: int
    mask_id: int

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        settings = {name: value for name, value in config.algorithm_config.items() if name != "block_size"}
        policy = Policy.of(settings, temperature=0, commit="threshold", threshold=_THRESHOLD)
        type(self)._policy, type(self)._mask = policy, self.mask_id  # `validate_request` belongs to the class
        self._config = policy.config
        self._store: KeyStore | None = None
        self._forbidden: list[int] | None = None

    def run(self, model_runner: Any, *arguments: Any, **options: Any) -> Any:
        """Decode as the base class does, once it is known which ids the model may not write."""
        if self._forbidden is None:
            self._forbidden = [self.mask_id, *_edit_ids(model_runner.model_config.hf_config)]
        return super().run(model_runner, *arguments, **options)  # type: ignore[misc]

    @classmethod
    def validate_request(cls, req: Any) -> str | None:
        """Choose the key of a request; what is wrong with its prompt or fields goes back to the client as a 400."""
        if cls._policy is None:
            return f"{NAME} is not running in this process"
        if cls._mask in req.origin_input_ids:  # which SGLang also makes of its name in a text
            return f"prompt id {cls._mask} is no text: the model fills a token there; leave it out of the prompt"
        parameters = req.sampling_params
        try:
            key = cls._policy.key_of(parameters.custom_params, req.rid)
        except SettingsError as error:
            return str(error)
        seed = seed_of(req.rid, getattr(parameters, "sampling_seed", None))
        # the request owns it, so the entry goes when the request does
        req.dgmark = cls._requests[req.rid] = _Request(key, len(req.origin_input_ids), seed, weakref.ref(req))
        return None

    def init_step_state(self, forward_batch: Any) -> list[Any]:
        """For each block, the number of forwards it has had."""
        return [[0] for _ in range(forward_batch.batch_size)]

    def step(self, forward_batch: Any, full_logits: Tensor, states: list[Any]) -> list[bool]:
        """Commit in every block, in place; say which blocks had nothing left to commit before this step."""
        shape = (forward_batch.batch_size, self.block_size)
        ids = forward_batch.input_ids.view(shape)
        masked = ids == self.mask_id
        if forward_batch.dllm_prompt_mask is not None:
            masked = masked & ~forward_batch.dllm_prompt_mask
        done = ~masked.any(1)
        requests = self._requests_of(forward_batch)
        positions = (
            forward_batch.positions.view(shape).long() - rows_of([request.start for request in requests], ids)[:, None]
        )
        uniforms = self._draws(requests, states, positions)
        logits = full_logits.view(*shape, -1)
        forbidden = rows_of(self._forbidden or [self.mask_id], ids)
        store = self._key_store(logits)
        keys, tokens = store.of([request.key for request in requests]), None
        if store.side.reach():
            # the finished blocks end where this one begins; one that is read again has nothing to commit
            tokens = torch.cat([rows_of([request.last(_TOKENS_BEFORE) for request in requests], ids), ids], 1)
        block = Block(masked, positions, keys, tokens)
        proposals = propose_block(logits, forbidden, self._config, uniforms, block=block, tempered=True)
        chosen = mark(proposals, block, config=self._config)
        committed = torch.where(chosen, proposals.tokens.to(ids.dtype), ids)
        forward_batch.input_ids.copy_(committed.view(-1))  # in place: a CUDA graph reads this tensor
        return list(map(bool, done.tolist()))

    def _key_store(self, logits: Tensor) -> KeyStore:
        if self._store is None:
            assert self._policy is not None
            self._store = self._policy.store(logits.shape[-1], logits.device)
        return self._store

    def _requests_of(self, forward_batch: Any) -> list[_Request]:
        """The requests of a batch; rows that SGLang adds to fill a graph have none."""
        rids = forward_batch.rids or []
        missing = [rid for rid in rids if rid not in self._requests]
        if missing:
            raise DgmarkError(
                f"SGLang decodes request {missing[0]}, which it never showed to validate_request: this version of "
                f"SGLang is not the one that {NAME} was made for"
            )
        return [self._requests[rid] for rid in rids] + [_UNMARKED] * (forward_batch.batch_size - len(rids))

    def _draws(self, requests: list[_Request], states: list[Any], positions: Tensor) -> Tensor | None:
        if self._config.greedy and self._config.strategy != "random":
            return None
        for state in states:
            state[0] += 1
        seeds, steps = (rows_of(numbers, positions) for numbers in ([r.seed for r in requests], [s[0] for s in states]))
        return uniform_draws(seeds, steps, positions)
