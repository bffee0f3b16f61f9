"""JSON files of training, written whole."""

import json
from pathlib import Path
from typing import Any

from dgmark.rows.whole_files import write_whole


def write_json(path: Path, content: Any) -> None:
    """JSON that people can read."""
    write_whole(path, json.dumps(content, indent=1) + "\n")
