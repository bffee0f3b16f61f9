"""The public names of dgmark, which `__init__.py` imports at their first use."""

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.columns.detect_columns import DetectColumns
from dgmark.columns.generate_columns import GenerateColumns
from dgmark.decode import (
    DecodeConfig,
    Generation,
    Infilling,
    Trace,
    generate,
    infill,
    select_positions,
    stream_generate,
    stream_text,
)
from dgmark.decode.settings_file import read_settings
from dgmark.decode.texts.written import MarkWarning
from dgmark.detection.detector import Detector, detect
from dgmark.detection.keyring import Keyring, load_keys, named_keys
from dgmark.detection.results.detection import Detection
from dgmark.detection.results.figures import ScoredToken, Span
from dgmark.detection.results.shading import Shade
from dgmark.detection.row_keys import RowKeys
from dgmark.errors import DgmarkError
from dgmark.models.denoiser import Denoiser
from dgmark.models.language_endpoint import LanguageEndpoint
from dgmark.models.language_model import LanguageModel
from dgmark.models.load import load_model
from dgmark.report.page import write_report
from dgmark.report.signing import SigningKey, verify_report
from dgmark.report.statement import Report
from dgmark.rows.documents import Document, read_document
from dgmark.rows.scoring import detect_file
from dgmark.version import __version__
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.key import WatermarkKey, subkey_of
from dgmark.watermark.key_file import KeyFilePermissionWarning
from dgmark.watermark.spec import WatermarkSpec
from dgmark_documents.reading import Limits

__all__ = [
    "DecodeConfig",
    "Denoiser",
    "DetectColumns",
    "Detection",
    "Detector",
    "DgmarkError",
    "Document",
    "GenerateColumns",
    "Generation",
    "Infilling",
    "KeyCommitment",
    "KeyFilePermissionWarning",
    "Keyring",
    "LanguageEndpoint",
    "LanguageModel",
    "Limits",
    "MarkWarning",
    "Report",
    "RowKeys",
    "ScoredToken",
    "Shade",
    "SigningKey",
    "Span",
    "Tokenizer",
    "Trace",
    "WatermarkKey",
    "WatermarkSpec",
    "__version__",
    "detect",
    "detect_file",
    "generate",
    "infill",
    "load_keys",
    "load_model",
    "load_tokenizer",
    "named_keys",
    "read_document",
    "read_settings",
    "select_positions",
    "stream_generate",
    "stream_text",
    "subkey_of",
    "verify_report",
    "write_report",
]
