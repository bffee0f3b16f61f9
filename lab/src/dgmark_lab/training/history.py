"""The log of a run, in rows of JSON, and the learning curve drawn from it."""

import json
import os
from pathlib import Path
from typing import Any

from dgmark.errors import ResumeMismatch
from dgmark.rows.outputs import atomic_file, atomic_write

Row = dict[str, Any]


class History:
    """`log.jsonl` of a run: a row every few steps, and rows of evaluations.

    Args:
        path: the file.
        step: the step that the run resumes from; later rows describe lost work and are dropped.

    Raises:
        ResumeMismatch: the file is not such a log.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        valid = [row for row in read_history(path) if row["step"] <= step]
        atomic_write(path, "".join(json.dumps(row) + "\n" for row in valid))

    def append(self, row: Row) -> None:
        """Write a row; it is on the disk when this returns."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_history(path: Path) -> list[Row]:
    """Read the rows of a log; a last line that a crash cut off is ignored, and a missing file has no rows.

    Raises:
        ResumeMismatch: the file is not such a log.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    try:
        rows = [json.loads(line) for line in lines]
        if all(isinstance(row["step"], int) for row in rows):
            return rows
    except (ValueError, KeyError, TypeError):
        pass
    raise ResumeMismatch(f"{path} is not a training log; choose another --out")


def draw_curve(rows: list[Row], path: Path, title: str) -> None:
    """Draw training and held-out loss over tokens, as PNG; nothing if there is no row yet."""
    trained = [(row["tokens"], row["loss"]) for row in rows if "loss" in row]
    held_out = [(row["tokens"], row["heldout"]) for row in rows if "heldout" in row]
    if not trained:
        return
    # imported here, because it takes a second; not pyplot, which needs a display and has global state
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*trained, strict=True), linewidth=0.8, alpha=0.6, label="training")
    if held_out:
        axes.plot(*zip(*held_out, strict=True), marker="o", markersize=3, label="held out, averaged weights")
    axes.set(xlabel="tokens", ylabel="nats a token", title=title)
    axes.set_ylim(top=min(max(loss for _, loss in trained), 2 * trained[-1][1]))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_file(path) as beside:
        figure.savefig(beside, format="png", dpi=120)
