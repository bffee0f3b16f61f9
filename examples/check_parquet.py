"""Add the columns of a verdict to a day's Parquet file, batch by batch: `python check_parquet.py key.json IN OUT`.

Needs `pip install '.[columns]'`. `dgmark detect --key key.json --out OUT IN` also goes on after it was stopped.
"""

import sys

import pyarrow as pa
import pyarrow.parquet as pq

import dgmark


def check(key_file: str, source: str, target: str, column: str = "text", rows: int = 4096) -> dict[str, int]:
    """Write the rows of `source` with verdicts to `target`, and count the verdicts."""
    detect = dgmark.DetectColumns(key_file, column)
    counts: dict[str, int] = {}
    with pq.ParquetFile(source) as file:
        schema = pa.schema([*file.schema_arrow, *detect.schema])
        with pq.ParquetWriter(target, schema) as writer:
            for batch in file.iter_batches(batch_size=rows):
                checked = detect(batch)
                writer.write_batch(checked)
                for verdict in checked.column("verdict").to_pylist():
                    counts[str(verdict)] = counts.get(str(verdict), 0) + 1
    return counts


if __name__ == "__main__":
    print(check(*sys.argv[1:]))
