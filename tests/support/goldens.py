"""Figures that are committed: texts are compared token by token, floats to 9 digits, as the last ones depend on the
processor.
"""

import json
import random
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dgmark import Trace, WatermarkKey
from support.marked_texts import marked_text
from support.unmarked_texts import KINDS

Rows = dict[str, Any]


@cache
def read_golden(path: Path) -> Rows:
    """The committed figures of each case, by its name, read once."""
    rows: Rows = json.loads(path.read_text(encoding="utf-8"))
    return rows


def write_golden(path: Path, rows: Rows) -> None:
    """Write one case a line."""
    lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(row)}" for case, row in rows.items())
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def check_equal(found: Any, expected: Any, name: str) -> None:
    """Check that figures are the same, and floats to 9 digits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), name
        for key, value in expected.items():
            check_equal(found[key], value, f"{name}: {key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), name
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            check_equal(one, other, f"{name}: {number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=0), name
    else:
        assert found == expected, name


def words_of(ids: list[int]) -> str:
    """Token ids in one string, which takes one line of a file."""
    return " ".join(map(str, ids))


def order_of_commits(trace: Trace) -> str:
    """The positions of a trace in the order of their commits, a semicolon after each step; "*" where none matched."""
    steps: dict[int, list[str]] = {}
    for step, position, matched in zip(trace.step, trace.position, trace.matched, strict=True):
        steps.setdefault(step, []).append(f"{position}{'' if matched else '*'}")
    return "; ".join(" ".join(places) for places in steps.values())


def forty_texts(key: WatermarkKey) -> dict[str, str]:
    """Texts of many kinds: unmarked ones, and what is written, edited, cut and hidden of a text that the key marks."""
    found = {f"{kind} {n}": text for kind, make in KINDS.items() for n, text in enumerate(make(random.Random(kind)))}
    whole, other = (marked_text(key, 120, seed=seed) for seed in (1, 2))
    words, more, prose = whole.split(" "), other.split(" "), found["prose 0"]
    return found | {
        "marked": whole,
        "marked, another": other,
        "marked, without its front": " ".join(words[23:]),
        "marked, every ninth word left out": " ".join(word for n, word in enumerate(words) if n % 9),
        "marked, every ninth word put in": " ".join(word if n % 9 else f"{word} the" for n, word in enumerate(words)),
        "marked, every fourth word replaced": " ".join(word if n % 4 else "the" for n, word in enumerate(words)),
        "marked, every other word replaced": " ".join(word if n % 2 else "of" for n, word in enumerate(words)),
        "marked, repeated": f"{whole} " * 3,
        "marked, looped": " ".join(words[:7] * 12),
        "marked, hard-wrapped": "\n".join(textwrap.wrap(whole, 60)),
        "marked, look-alike letters": whole.replace("e", "\u0435"),
        "marked within prose": f"{prose[:700]} {whole} {prose[700:]}",
        "marked twice within prose": f"{prose[:300]} {' '.join(words[:50])} {prose[300:900]} {' '.join(more[:50])}",
        "marked, 40 words": " ".join(words[:40]),
        "marked, 20 words": " ".join(words[:20]),
        "marked, 8 words": " ".join(words[:8]),
        "one word": "the",
        "empty": "",
    }
