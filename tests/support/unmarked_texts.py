"""Unmarked texts of the kinds for which fair coins are wrong (loops, tables, code), and prose."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support.known_keys import builtin_tokenizer

PROSE = Path(__file__).parents[1] / "texts"
NAMES = ["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Tony", "Frances", "John", "Niklaus", "Leslie", "Robin"]
PLACES = ["London", "Paris", "Oslo", "Cairo", "Lima", "Quito", "Delhi", "Kyoto"]
FIELDS = ["count", "total", "index", "value", "width", "limit", "score", "offset"]


def loops(dice: random.Random) -> Iterator[str]:
    """A sentence that repeats, as a model caught in a loop writes it: periods even and odd."""
    for sentence in (
        "The cat sat on the mat and looked at the moon. ",
        "sir, ",
        "And then she said that he said that she went home again. ",
    ):
        yield sentence * 40
        yield f"{dice.choice(NAMES)} began. " + sentence * 30


def csv_rows(dice: random.Random) -> Iterator[str]:
    """Rows of small whole numbers, and rows of names, places and prices."""
    for length in (20, 35):
        yield "\n".join(",".join(str(dice.randint(0, 9)) for _ in range(5)) for _ in range(length))
        yield "id,name,place,price\n" + "\n".join(
            f"{row},{dice.choice(NAMES)},{dice.choice(PLACES)},{dice.randint(1, 99)}" for row in range(length)
        )


def markdown_tables(dice: random.Random) -> Iterator[str]:
    """Tables of figures, and tables of marks."""
    for length in (12, 25):
        yield "| name | wins | losses |\n| --- | --- | --- |\n" + "\n".join(
            f"| {dice.choice(NAMES)} | {dice.randint(0, 20)} | {dice.randint(0, 20)} |" for _ in range(length)
        )
        yield "| a | b | c | d |\n|---|---|---|---|\n" + "\n".join(
            "| " + " | ".join(dice.choice(["x", "-", "x", "x"]) for _ in range(4)) + " |" for _ in range(length)
        )


def python_code(dice: random.Random) -> Iterator[str]:
    """Functions of one shape, and a long table of constants."""
    for length in (5, 9):
        yield "\n\n".join(
            f"def get_{name}(self, {name}):\n    if {name} < {dice.randint(0, 9)}:\n        return None\n"
            f"    self.{name} = {name} + 1\n    return self.{name}"
            for name in dice.choices(FIELDS, k=length)
        )
        yield "TABLE = {\n" + "".join(f'    "{dice.choice(FIELDS)}": {row},\n' for row in range(5 * length)) + "}\n"


def prose(dice: random.Random) -> Iterator[str]:
    """Two books, whole passages and crops of them."""
    for file in ("willows.txt", "time_machine.txt"):
        passage = (PROSE / file).read_text(encoding="utf-8")
        yield passage[:1400]
        begin = dice.randrange(200, 900)
        yield passage[begin : begin + 700]


KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "looped text": loops,
    "CSV": csv_rows,
    "Markdown tables": markdown_tables,
    "Python code": python_code,
    "prose": prose,
}


@cache
def texts(kind: str, most: int | None) -> list[NDArray[np.int64]]:
    """The token ids of a kind's texts, each cut after `most` tokens."""
    return [np.array(builtin_tokenizer().encode(text)[:most]) for text in KINDS[kind](random.Random(kind))]
