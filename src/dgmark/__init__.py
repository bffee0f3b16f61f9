"""dgmark: the watermark for text written by diffusion language models.

Keys and detection need numpy and tokenizers only. The stub `__init__.pyi` lists the public names and where they are
defined; every name is imported at its first use.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_MODULES = {name.name: str(one.module) for one in _STUB.body if isinstance(one, ast.ImportFrom) for name in one.names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dgmark' has no attribute {name!r}")
    try:
        value = getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        from dgmark.errors import distribution_hint, install_hint

        if _MODULES[name].startswith("dgmark_documents"):
            raise ImportError(f"dgmark.{name} needs dgmark-documents: {distribution_hint('documents')}") from error
        if not _MODULES[name].startswith(("dgmark.decode", "dgmark.models")):
            raise
        raise ImportError(f"dgmark.{name} needs torch and transformers: {install_hint('generate')}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
