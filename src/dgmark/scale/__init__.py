"""Many texts on many machines, with Ray Data: `detect` and `generate` over datasets, and over files into a folder.

Needs the extra `scale`. Knows nothing of how a text is scored or made.
"""

from dgmark.scale.detecting import detect, detect_files
from dgmark.scale.generating import generate, generate_files

__all__ = ["detect", "detect_files", "generate", "generate_files"]
