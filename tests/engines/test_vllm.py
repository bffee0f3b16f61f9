"""Whether vLLM has come to serve a model that could be marked: docs/integrating.md says why there is no adapter."""

import re

from support.engine_packages import files_of

# DiffusionGemma has no mask token: it replaces any token at any step
UNMARKABLE = {"diffusion_gemma.py", "diffusion_gemma_sampler.py"}
DIFFUSION = re.compile(r"vllm/model_executor/models/((?!moondream)\w*(?:dllm|diffusion|llada|sdar|dream)\w*\.py)")


def test_no_release_serves_a_masked_diffusion_model() -> None:
    version, files = files_of("vllm")
    models = {match[1] for file in files if (match := DIFFUSION.fullmatch(file))}
    assert models >= UNMARKABLE, f"vLLM {version} keeps its models elsewhere: look where"
    assert models == UNMARKABLE, f"vLLM {version} has {models - UNMARKABLE}: it may take an adapter now"
