"""JSON files of training, written atomically."""

import json
from pathlib import Path
from typing import Any

from dgmark.rows.outputs import atomic_write


def write_json(path: Path, content: Any) -> None:
    """Write JSON with indentation, for people to read."""
    atomic_write(path, json.dumps(content, indent=1) + "\n")
