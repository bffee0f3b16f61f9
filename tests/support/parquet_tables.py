"""A Parquet file of texts, made where it is needed."""

from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

TEXTS = [f"This is text number {n}, which says that {n} is a number." for n in range(150)]


def write_table(path: Path) -> Path:
    """150 rows in four groups; the last one has no text."""
    columns = {"id": [f"row {n}" for n in range(150)], "text": [*TEXTS[:-1], None], "more": list(range(150))}
    parquet.write_table(arrow.table(columns), path, row_group_size=40)
    return path
