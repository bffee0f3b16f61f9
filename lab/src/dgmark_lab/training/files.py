"""JSON files of training, written atomically."""

import json
from pathlib import Path
from typing import Any

from dgmark.rows.whole_files import write_whole


def write_json(path: Path, content: Any) -> None:
    """Write JSON with indentation, for people to read."""
    write_whole(path, json.dumps(content, indent=1) + "\n")
