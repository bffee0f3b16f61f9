"""The adapter for dlmserve, on a stub of its loop; and dlmserve itself over HTTP, with a toy for LLaDA."""

import inspect
import json
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dgmark
from dgmark.decode import DecodeConfig, KeyMatching, decode
from dgmark.detection.detector import Detector
from dgmark.engines.dlmserve import install
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from support import dlmserve_stub
from support.dlmserve_run import TOY
from support.engine_packages import package
from support.fresh_process import run_fresh
from support.known_keys import bound_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key with sub-keys, and one without."""
    folder = tmp_path_factory.mktemp("keys")
    bound_key("many", TOY, code_length=16, subkeys=64).save(folder / "many.json")
    bound_key("plain", TOY).save(folder / "plain.json")
    return folder


def start(modules: Any, rid: str, prompt: list[int], **headers: str) -> Any:
    """What dlmserve does in the handler of a request."""
    params = SimpleNamespace(gen_length=24, block_length=8, temperature=0.0, seed=3, use_local_leap=False)

    def handler() -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        modules.server._request_id(SimpleNamespace(headers={"x-request-id": rid, **named}))
        return modules.engine.init_state(torch.tensor([prompt]), params, mask_id=0)

    return copy_context().run(handler)


def test_a_padded_batch_commits_what_our_loop_commits(keys: Path) -> None:
    """Prompts of several lengths in one batch, each request with its own key."""
    key, plain = WatermarkKey.load(keys / "many.json"), WatermarkKey.load(keys / "plain.json")
    with dlmserve_stub.installed() as modules:
        install({"keys": str(keys), "key": "many"})
        states = [
            start(modules, "a", [2, 7, 5]),
            start(modules, "b", [4, 4, 9, 8, 3, 2], dgmark="false"),
            start(modules, "c", [6], dgmark_payload="9"),
            start(modules, "d", [6, 7], dgmark_key="plain"),
        ]
        for _ in range(24):
            modules.engine.step_batch(TOY, states, mask_id=0, pad_token_id=5)
    config = DecodeConfig(length=24, block_length=8, temperature=0)
    of_row = [key.subkey(dgmark.subkey_of(key, "a")), None, key.subkey(9), plain]
    for state, own in zip(states, of_row, strict=True):
        prompt, answer = state.seq[:, : state.prompt_len], state.seq[0, state.prompt_len :].tolist()
        (ours,) = decode(TOY, prompt, config, KeyMatching([own], torch.device("cpu")), seeds=[0])
        assert answer == ours.token_ids


def test_what_cannot_be_met_is_a_400(keys: Path) -> None:
    with dlmserve_stub.installed() as modules:
        install({"keys": str(keys), "key": "many", "policy": "enforce"})
        refused = ({"dgmark": "false"}, {"dgmark": "perhaps"}, {"dgmark_other": "1"})
        payloads = ({"dgmark_payload": text} for text in ("64", "7" * 21, "7" * 5000, "-1", "\u00b2", ""))
        for headers in (*refused, *payloads):
            with pytest.raises(Exception, match=r"dgmark|sub-key|is marked") as found:
                start(modules, "a", [2], **headers)
            assert found.value.status_code == 400  # type: ignore[attr-defined]
            assert len(found.value.detail) < 200  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"temperature": 0}, "temperature from each request"),
        ({"commit": "threshold"}, "would leave masks in the answer: leave commit out"),
        ({"commit": "factor", "factor": 0.5}, "leave commit, factor out"),
        ({"threshold": 0.9}, "leave threshold out"),
    ],
)
def test_what_dlmserve_decides_itself_is_refused(keys: Path, settings: dict[str, Any], problem: str) -> None:
    with dlmserve_stub.installed() as modules, pytest.raises(SettingsError, match=problem):
        install({"keys": str(keys), "key": "many", **settings})
    assert modules.engine.step_batch is dlmserve_stub.step_batch


def test_top_k_of_the_settings_lets_greedy_requests_through(keys: Path) -> None:
    with dlmserve_stub.installed() as modules:
        install({"keys": str(keys), "key": "many", "top_k": 5})
        state = start(modules, "a", [2, 7, 5])
        modules.engine.step_batch(TOY, [state], mask_id=0, pad_token_id=5)
    assert (state.seq[0, 3:] != 0).sum() == 1


# --- dlmserve itself ---


def test_an_answer_of_dlmserve_is_detected_and_its_id_names_the_sub_key(keys: Path) -> None:
    """In the engine's loop and with force_single_batch: the text, the opt-out and both refusals."""
    code = f"""
import sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = [{package("dlmserve").path!r}, {str(Path(__file__).parents[1])!r}]
from support.dlmserve_run import answers
answers({str(keys)!r})
"""
    detector = Detector(WatermarkKey.load(keys / "many.json"), phase="start", tokenizer=TOY.tokenizer)
    for alone in json.loads(run_fresh(code).splitlines()[-1]):
        found = detector.detect(alone["marked"])
        assert found.verdict == "watermarked"
        assert found.subkey == dgmark.subkey_of(detector.key, alone["id"])
        assert detector.detect(alone["unmarked"]).verdict != "watermarked"
        assert alone["payload 64"][0] == 400
        assert "0..63" in alone["payload 64"][1]
        assert alone["leap"][0] == 400
        assert "LocalLeap" in alone["leap"][1]


def test_dlmserve_has_the_functions_that_the_stub_has() -> None:
    wheel = package("dlmserve")
    functions: list[tuple[str, Any]] = [
        ("dlmserve/denoise_loop.py", dlmserve_stub.init_state),
        ("dlmserve/denoise_loop.py", dlmserve_stub.step_batch),
        ("dlmserve/sampler.py", dlmserve_stub.commit_top_k_by_confidence),
        ("dlmserve/api/server.py", dlmserve_stub._request_id),
    ]
    for path, function in functions:
        assert wheel.arguments(path, function.__name__) == list(inspect.signature(function).parameters)
    wheel.check("dlmserve/engine.py", "state = init_state(input_ids, params,", "step_batch( model=", "states=states")
    wheel.check("dlmserve/api/server.py", "req_id = _request_id(request)", "id=req_id")
