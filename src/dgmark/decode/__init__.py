"""Decoding masked diffusion models, with or without the mark.

The stub `__init__.pyi` lists the public names and where they are defined. Every name is imported at its first use, as
the settings need no torch. No module shares its name with one of them, because importing the module would replace that
name.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_IMPORTS = [statement for statement in _STUB.body if isinstance(statement, ast.ImportFrom)]
_MODULES = {name.name: str(statement.module) for statement in _IMPORTS for name in statement.names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dgmark.decode' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_MODULES[name]), name))
