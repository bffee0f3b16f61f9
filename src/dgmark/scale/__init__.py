"""Many texts on many machines, with Ray Data: files of texts or prompts to a folder of Parquet files that resumes.

Needs the extra `scale`. Knows nothing of how a text is scored or made.
"""

from dgmark.scale.detect import detect_files
from dgmark.scale.generate import generate_files

__all__ = ["detect_files", "generate_files"]
