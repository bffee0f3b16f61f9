"""dgmark: the watermark for text written by diffusion language models.

Keys and detection need numpy and tokenizers only. Names that need torch are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.detection.detect_files import detect_file
from dgmark.detection.detector import Detector, detect
from dgmark.detection.keyring import Keyring, load_keys
from dgmark.detection.result import Detection, ScoredToken, Span
from dgmark.documents.document import Document, read_document
from dgmark.errors import DgmarkError, install_hint
from dgmark.report.contents import Report
from dgmark.report.page import write_report
from dgmark.report.signing import SigningKey, verify_report
from dgmark.version import __version__
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey, subkey_of
from dgmark.watermark.key_file import KeyFilePermissionWarning

if TYPE_CHECKING:
    from dgmark.decode import (
        DecodeConfig,
        Generation,
        Infilling,
        Trace,
        generate,
        infill,
        select_positions,
        stream_generate,
    )
    from dgmark.decode.settings_file import read_settings
    from dgmark.models.convert import convert_checkpoint
    from dgmark.models.denoiser import Denoiser
    from dgmark.models.load import load_model

_NEED_TORCH = {
    "DecodeConfig": "dgmark.decode",
    "Denoiser": "dgmark.models.denoiser",
    "Generation": "dgmark.decode",
    "Infilling": "dgmark.decode",
    "Trace": "dgmark.decode",
    "convert_checkpoint": "dgmark.models.convert",
    "generate": "dgmark.decode",
    "infill": "dgmark.decode",
    "load_model": "dgmark.models.load",
    "read_settings": "dgmark.decode.settings_file",
    "select_positions": "dgmark.decode",
    "stream_generate": "dgmark.decode",
}

__all__ = [
    "DecodeConfig",
    "Denoiser",
    "Detection",
    "Detector",
    "DgmarkError",
    "Document",
    "Generation",
    "Infilling",
    "KeyCommitment",
    "KeyFilePermissionWarning",
    "Keyring",
    "Report",
    "ScoredToken",
    "SigningKey",
    "Span",
    "Tokenizer",
    "Trace",
    "WatermarkKey",
    "WatermarkSpec",
    "__version__",
    "convert_checkpoint",
    "detect",
    "detect_file",
    "generate",
    "infill",
    "load_keys",
    "load_model",
    "load_tokenizer",
    "read_document",
    "read_settings",
    "select_positions",
    "stream_generate",
    "subkey_of",
    "verify_report",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'dgmark' has no attribute {name!r}")
    try:
        value = getattr(import_module(_NEED_TORCH[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"dgmark.{name} needs torch and transformers: {install_hint('generate')}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
