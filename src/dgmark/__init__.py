"""dgmark: the watermark for text written by diffusion language models.

Keys and detection need numpy and tokenizers only; what needs torch is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dgmark.detector import Detection, Detector, ScoredToken, Span, detect
from dgmark.errors import DgmarkError
from dgmark.key import KeyFilePermissionWarning, WatermarkKey
from dgmark.keyring import Keyring, load_keys
from dgmark.tokenizer import Tokenizer, load_tokenizer
from dgmark.version import __version__
from dgmark.watermark import WatermarkSpec

if TYPE_CHECKING:
    from dgmark.conversion import convert
    from dgmark.decode import DecodeConfig, Generation, Infilling, Trace, generate, infill, select, stream
    from dgmark.models import Denoiser, load_model

_NEED_TORCH = {
    "DecodeConfig": "dgmark.decode",
    "Denoiser": "dgmark.models",
    "Generation": "dgmark.decode",
    "Infilling": "dgmark.decode",
    "Trace": "dgmark.decode",
    "convert": "dgmark.conversion",
    "generate": "dgmark.decode",
    "infill": "dgmark.decode",
    "load_model": "dgmark.models",
    "select": "dgmark.decode",
    "stream": "dgmark.decode",
}

__all__ = [
    "DecodeConfig",
    "Denoiser",
    "Detection",
    "Detector",
    "DgmarkError",
    "Generation",
    "Infilling",
    "KeyFilePermissionWarning",
    "Keyring",
    "ScoredToken",
    "Span",
    "Tokenizer",
    "Trace",
    "WatermarkKey",
    "WatermarkSpec",
    "__version__",
    "convert",
    "detect",
    "generate",
    "infill",
    "load_keys",
    "load_model",
    "load_tokenizer",
    "select",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'dgmark' has no attribute {name!r}")
    try:
        value = getattr(import_module(_NEED_TORCH[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"dgmark.{name} needs torch and transformers: pip install 'dgmark[generate]'") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
