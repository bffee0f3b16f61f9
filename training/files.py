"""JSON files of training, written whole."""

import json
from pathlib import Path
from typing import Any

from dgmark.rows.whole_files import replacing_file


def write_json(path: Path, content: Any) -> None:
    """JSON that people can read."""
    with replacing_file(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
