"""The plug-in for SGLang on a stub of its scheduler: the text of our loop, keys by request, policies, refusals."""

import gc
import inspect
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dgmark
from dgmark.decode import DecodeConfig, decode
from dgmark.engines import sglang
from dgmark.errors import DgmarkError, SettingsError, VocabularyMismatch
from dgmark.models.denoiser import BlockOrigin, ConfidenceSource
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.cases import cases
from support.engine_packages import package
from support.known_keys import bound_key
from support.rules import rule_of_key
from support.sglang_stub import DllmAlgorithm, Req, Server, installed


@dataclass(frozen=True)
class BlockCausalToy(ToyDenoiser):
    """A toy that reads a canvas block by block, as LLaDA 2 and SDAR do: no place sees a later block.

    Attributes:
        block: tokens in a block; blocks count from the start of the canvas.
    """

    spread: float = 60.0
    end_ids: tuple[int, ...] = ()
    words: int = 60
    end_bias: float = -1e3
    forbidden_bias: float = -1e3
    block: int = 8
    block_origin: BlockOrigin = "canvas"
    confidence_source: ConfidenceSource = "sampling"

    def __call__(self, ids: Tensor) -> Tensor:
        edges = range(0, ids.shape[1], self.block)
        return torch.cat(
            [super(BlockCausalToy, self).__call__(ids[:, : low + self.block])[:, low:] for low in edges], 1
        )


TOY = BlockCausalToy()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two keys for the toy, one with sub-keys."""
    folder = tmp_path_factory.mktemp("keys")
    bound_key("plain", TOY, farthest=10, subkeys=1).save(folder / "plain.json")
    bound_key("many", TOY, farthest=10, subkeys=64).save(folder / "many.json")
    return folder


@pytest.fixture(params=["on a stub", "on SGLang's own base class"])
def algorithm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The class that the plug-in registers."""
    base = DllmAlgorithm if request.param == "on a stub" else real_base(tmp_path)
    with installed(base) as algorithms:
        sglang.register()
        yield algorithms["DgMark"]


def real_base(folder: Path) -> Any:
    """SGLang's base class, with stubs for what its module imports."""
    imports: dict[str, dict[str, Any]] = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.dllm": {},
        "sglang.srt.dllm.algorithm": {"get_algorithm": None},
        "sglang.srt.dllm.config": {"DllmConfig": Any},
        "sglang.srt.layers": {},
        "sglang.srt.layers.logits_processor": {"LogitsProcessorOutput": Any},
        "sglang.srt.model_executor": {},
        "sglang.srt.model_executor.forward_batch_info": {"ForwardBatch": Any},
        "sglang.srt.model_executor.model_runner": {"ModelRunner": Any},
        "sglang.srt.server_args": {"ServerArgs": Any},
        "sglang.srt.utils": {"is_npu": lambda: False},
    }
    file = "sglang/srt/dllm/algorithm/base.py"
    return package("sglang").run(file, "sglang.srt.dllm.algorithm.base", imports, folder).DllmAlgorithm


def server(algorithm: Any, keys: Path, *, fdfo: bool = True, **settings: Any) -> Server:
    return Server(algorithm, TOY, {"keys": str(keys), "key": "many", "bias": 2, **settings}, fdfo=fdfo)


def prompt(number: int, length: int) -> list[int]:
    return [2 + (7 * number + place) % 60 for place in range(length)]


def our_loop(
    key: WatermarkKey | None, ids: list[int], length: int, config: DecodeConfig
) -> tuple[list[int], list[set[int]]]:
    """The text of our loop, and the positions of each step."""
    config = DecodeConfig(**{**config.to_dict(), "length": length, "block_length": 8})
    (response,) = decode(TOY, torch.tensor([ids]), config, rule_of_key(key), seeds=[0])
    trace = response.trace
    steps = [
        {p for p, s in zip(trace.position, trace.step, strict=True) if s == step} for step in sorted(set(trace.step))
    ]
    return response.token_ids, steps


@pytest.mark.parametrize("fdfo", [True, False], ids=["first done first out", "all together"])
@pytest.mark.parametrize("commit", ["threshold", "quota"])
@pytest.mark.parametrize("rule", ["bigram", "position"])
def test_every_step_commits_what_our_loop_commits(
    algorithm: Any, keys: Path, fdfo: bool, commit: str, rule: str, tmp_path: Path
) -> None:
    """Requests with prompts of any length, that come and go, some opted out."""
    names = {"a": "many", "c": "plain", "d": "many", "e": "many"}
    if rule == "position":
        keys = tmp_path
        for name in ("many", "plain"):
            bound_key(name, TOY, rule="position").save(keys / f"{name}.json")
    engine = server(algorithm, keys, fdfo=fdfo, commit=commit)
    requests = [
        Req.of("a", prompt(1, 5)),
        Req.of("b", prompt(2, 8), dgmark=False),
        Req.of("c", prompt(3, 19), dgmark_key="plain"),
        Req.of("d", prompt(4, 1), **({"dgmark_payload": 7} if rule == "bigram" else {})),
        Req.of("e", prompt(5, 16)),
    ]
    # without FDFO, a batch waits for its slowest block, and a batch of nothing but prompt decodes nothing
    answers = engine.serve(requests if fdfo else [r for r in requests if len(r.origin_input_ids) < 8], 24, at_once=2)
    of_request: dict[str, WatermarkKey | None] = {"b": None}
    for rid, name in names.items():
        key = WatermarkKey.load(keys / f"{name}.json")
        of_request[rid] = key if key.spec.subkeys == 1 else key.subkey(7 if rid == "d" else dgmark.subkey_of(key, rid))
    config = DecodeConfig(temperature=0, bias=2, commit=commit, threshold=0.95)  # type: ignore[arg-type]
    for rid, answer in answers.items():
        (req,) = [one for one in requests if one.rid == rid]
        # our loop fills whole blocks from the canvas's start
        length = -(-(len(req.origin_input_ids) + 24) // 8) * 8
        text, steps = our_loop(of_request[rid], req.origin_input_ids, length, config)
        assert answer == text[:24]
        if fdfo:
            taken = [set(places) for one, places in engine.steps if one == rid and places]
            assert taken == steps[: len(taken)]
            assert len(taken) >= 3


def test_all_ranks_draw_the_same_whatever_shares_the_batch(algorithm: Any, keys: Path) -> None:
    """Sampling: neither the neighbours nor the process change a text; the request's id or seed does."""

    def sampled(requests: list[Req], at_once: int) -> dict[str, list[int]]:
        engine = server(algorithm, keys, temperature=1.0, top_k=20, commit="quota")
        return engine.serve(requests, 16, at_once=at_once)

    first = sampled([Req.of(rid, prompt(1, 5)) for rid in "abc"], at_once=3)
    second = sampled([Req.of(rid, prompt(1, 5)) for rid in "cab"], at_once=1)
    assert first == second
    assert len({tuple(answer) for answer in first.values()}) == 3
    seeded = sampled(
        [Req.of("x", prompt(1, 5), seed=4, dgmark=False), Req.of("y", prompt(1, 5), seed=4, dgmark=False)], 2
    )
    assert seeded["x"] == seeded["y"]


@pytest.mark.parametrize(("policy", "custom", "problem"), cases(__file__, "refused"))
def test_a_request_that_cannot_be_met_is_refused(
    algorithm: Any, keys: Path, policy: str, custom: dict[str, Any], problem: str
) -> None:
    engine = server(algorithm, keys, policy=policy)
    error = engine.algorithm.validate_request(Req.of("r", [2, 3], **custom))
    with pytest.raises(SettingsError, match=problem):
        raise SettingsError(error)
    # fields of others are none of our business
    assert engine.algorithm.validate_request(Req.of("r", [2, 3], __req__=1, thinking_budget=4)) is None


def test_a_model_of_another_vocabulary_or_tokenizer_is_refused(algorithm: Any, keys: Path) -> None:
    other = Server(algorithm, BlockCausalToy(words=61), {"keys": str(keys), "key": "many", "bias": 2})
    with pytest.raises(VocabularyMismatch, match="make a key for this model"):
        other.serve([Req.of("r", [2, 3])], 8)
    with pytest.raises(dgmark.DgmarkError, match="is bound to tokenizer 'toy'"):
        server(algorithm, keys, tokenizer="storyteller")


def test_a_prompt_with_the_mask_is_refused(algorithm: Any, keys: Path) -> None:
    engine = server(algorithm, keys)
    error = engine.algorithm.validate_request(Req.of("r", [2, engine.model.mask_id, 3]))
    assert error.startswith("prompt id 0 is no text")


def test_a_request_is_forgotten_with_the_object_that_the_scheduler_keeps(algorithm: Any, keys: Path) -> None:
    engine = server(algorithm, keys)
    requests = [Req.of(f"forget {n}", [2, 3]) for n in range(50)]
    for req in requests:
        assert engine.algorithm.validate_request(req) is None
    assert len([rid for rid in algorithm._requests if rid.startswith("forget")]) == 50
    kept = requests.pop()
    del requests, req
    gc.collect()
    assert [rid for rid in algorithm._requests if rid.startswith("forget")] == [kept.rid]


def test_a_request_that_was_never_validated_is_not_decoded_unmarked(algorithm: Any, keys: Path) -> None:
    engine = server(algorithm, keys)
    with pytest.raises(DgmarkError, match="never showed to validate_request"):
        engine._round([Req.of("stranger", [2, 3])])


@dataclass(frozen=True)
class EditingToy(BlockCausalToy):
    """A toy with two words for deletions and insertions, which it likes best."""

    edit_ids: tuple[int, ...] = (5, 9)
    spread: float = 8.0

    def __call__(self, ids: Tensor) -> Tensor:
        logits = super().__call__(ids)
        logits[..., list(self.edit_ids)] += 6
        return logits


def test_no_text_has_a_token_that_deletes_or_inserts(algorithm: Any, keys: Path) -> None:
    engine = Server(algorithm, EditingToy(), {"keys": str(keys), "key": "many", "temperature": 1.0})
    count = 200 if os.environ.get("DGMARK_ALL_CASES") else 40
    answers = engine.serve([Req.of(f"edit {n}", prompt(n, 1 + n % 9)) for n in range(count)], 16, at_once=20)
    assert len(answers) == count
    assert not {5, 9} & {token for answer in answers.values() for token in answer}


@pytest.mark.parametrize("ids", [(5,), ("5", 9)])
def test_half_of_what_edits_is_refused(algorithm: Any, keys: Path, ids: tuple[Any, ...]) -> None:
    engine = Server(algorithm, EditingToy(edit_ids=ids), {"keys": str(keys), "key": "many", "bias": 2})
    with pytest.raises(SettingsError, match="delete_token_id and split_token_id: fetch the checkpoint again"):
        engine._round([Req.of("r", [2, 3])])


# --- SGLang itself ---


def test_sglang_calls_an_algorithm_as_the_stub_does() -> None:
    file = "sglang/srt/dllm/algorithm/base.py"
    for method in ("__init__", "init_step_state", "max_steps", "step", "run"):
        stubbed = list(inspect.signature(getattr(DllmAlgorithm, method)).parameters)
        assert package("sglang").arguments(file, f"DllmAlgorithm.{method}") == stubbed
    assert package("sglang").arguments(file, "DllmAlgorithm.validate_request") == ["cls", "req"]


def test_sglang_has_what_the_plug_in_reads() -> None:
    wheel, srt = package("sglang"), "sglang/srt"
    wheel.check(f"{srt}/plugins/__init__.py", 'GENERAL_PLUGINS_GROUP = "sglang.srt.plugins"')
    wheel.check(
        f"{srt}/dllm/algorithm/__init__.py", "algo_name_to_cls = import_algorithms()", "return algo_name_to_cls[name]"
    )
    wheel.check(
        f"{srt}/dllm/config.py", "get_algorithm_cls(self.algorithm).validate_request(req)", "self.algorithm_config ="
    )
    wheel.check(f"{srt}/dllm/config.py", *(f'"{one}":' for one in sglang.SGLangMarking.supported_architectures))
    wheel.check(
        f"{srt}/managers/scheduler.py", "if error_msg := self.validate_dllm_request(req):", "HTTPStatus.BAD_REQUEST"
    )
    wheel.check(
        f"{srt}/managers/tp_worker.py",
        "algo_states = [req.dllm_algo_state for req in batch.reqs]",
        "self.dllm_algorithm.run(self.model_runner, forward_batch, algo_states)",
    )
    wheel.check(
        f"{srt}/model_executor/forward_batch_info.py",
        "rids=[req.rid for req in batch.reqs]",
        "ret.positions.view(-1, block_size) < prompt_lens[:, None]",
    )
    wheel.check(f"{srt}/model_executor/model_runner.py", "self.model_config = model_config")
    wheel.check(f"{srt}/dllm/mixin/scheduler.py", "req.output_ids.extend(next_token_ids)")
    wheel.check(f"{srt}/managers/schedule_batch.py", "origin_input_ids: array[int]", "weakref.proxy(self)")
    wheel.check(f"{srt}/sampling/sampling_params.py", "custom_params:", "sampling_seed:")
    # the forward pass that `done before commit` waits for
    wheel.check(
        f"{srt}/dllm/algorithm/base.py", "must not report completion until a forward has persisted their final tokens"
    )


def test_the_plug_in_stands_where_sglang_looks_for_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["sglang.srt.plugins"] == {"dgmark": "dgmark.engines.sglang:register"}
