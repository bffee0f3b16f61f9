"""dgmark: the watermark for text written by diffusion language models.

Keys and detection need numpy and tokenizers only. Every name is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dgmark.version import __version__

if TYPE_CHECKING:
    from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
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
    from dgmark.detection.detect_files import detect_file
    from dgmark.detection.detector import Detector, detect
    from dgmark.detection.finding import ScoredToken, Span
    from dgmark.detection.keyring import Keyring, load_keys
    from dgmark.detection.result import Detection
    from dgmark.documents.document import Document, read_document
    from dgmark.errors import DgmarkError
    from dgmark.models.convert import convert_checkpoint
    from dgmark.models.denoiser import Denoiser
    from dgmark.models.load import load_model
    from dgmark.report.contents import Report
    from dgmark.report.page import write_report
    from dgmark.report.signing import SigningKey, verify_report
    from dgmark.watermark.commitment import KeyCommitment
    from dgmark.watermark.key import WatermarkKey, subkey_of
    from dgmark.watermark.key_file import KeyFilePermissionWarning
    from dgmark.watermark.spec import WatermarkSpec

_NAMES = {
    "checkpoint.tokenizer": ("Tokenizer", "load_tokenizer"),
    "decode": (
        "DecodeConfig",
        "Generation",
        "Infilling",
        "Trace",
        "generate",
        "infill",
        "select_positions",
        "stream_generate",
    ),
    "decode.settings_file": ("read_settings",),
    "detection.detect_files": ("detect_file",),
    "detection.detector": ("Detector", "detect"),
    "detection.keyring": ("Keyring", "load_keys"),
    "detection.finding": ("ScoredToken", "Span"),
    "detection.result": ("Detection",),
    "documents.document": ("Document", "read_document"),
    "errors": ("DgmarkError",),
    "models.convert": ("convert_checkpoint",),
    "models.denoiser": ("Denoiser",),
    "models.load": ("load_model",),
    "report.contents": ("Report",),
    "report.page": ("write_report",),
    "report.signing": ("SigningKey", "verify_report"),
    "watermark.commitment": ("KeyCommitment",),
    "watermark.spec": ("WatermarkSpec",),
    "watermark.key": ("WatermarkKey", "subkey_of"),
    "watermark.key_file": ("KeyFilePermissionWarning",),
}
_MODULES = {name: f"dgmark.{module}" for module, names in _NAMES.items() for name in names}

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
    if name not in _MODULES:
        raise AttributeError(f"module 'dgmark' has no attribute {name!r}")
    try:
        value = getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if not _MODULES[name].startswith(("dgmark.decode", "dgmark.models")):
            raise
        from dgmark.errors import install_hint

        raise ImportError(f"dgmark.{name} needs torch and transformers: {install_hint('generate')}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
