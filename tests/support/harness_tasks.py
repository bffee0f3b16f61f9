"""A task of the lm-evaluation-harness, read from this machine alone."""

import json
from collections.abc import Sequence
from pathlib import Path

TASK = """
task: {name}
output_type: generate_until
dataset_path: json
dataset_kwargs:
  data_files: {data}
  cache_dir: {cache}
test_split: train
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {settings}
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""


def write_task(folder: Path, name: str, items: Sequence[dict[str, str]], **settings: object) -> Path:
    """A folder with a task of this name: items of "question" and "answer", generated with these settings."""
    tasks = folder / "tasks"
    tasks.mkdir()
    data = tasks / "items.json"
    data.write_text("".join(json.dumps(one) + "\n" for one in items))
    written = TASK.format(name=name, data=data, cache=folder / "cache", settings=json.dumps(settings))
    (tasks / f"{name}.yaml").write_text(written)
    return tasks
