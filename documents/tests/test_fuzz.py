"""Documents of the corpus with random damage: never a fault of dgmark, and never most of a text lost without a note."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dgmark import Detector, read_document
from dgmark.errors import InputError
from support.documents import CORPUS, corpus_key, source_of

DETECTOR = Detector(corpus_key())
NAMES = sorted(file.name for file in CORPUS.iterdir() if file.suffix != ".png" and "locked" not in file.name)
# each takes a process of its own: every document of the corpus once; `make soak` tries 300
FILES = int(os.environ.get("DGMARK_FUZZED_DOCUMENTS", len(NAMES)))


def damaged(content: bytes, dice: random.Random) -> bytes:
    """A file with up to 20 bytes changed, a piece cut out, doubled, or filled with noise, or its end cut off."""
    kind, size = dice.randrange(5), len(content)
    start = dice.randrange(size)
    end = min(size, start + dice.randrange(1, 200))
    if kind == 0:
        changed = bytearray(content)
        for _ in range(dice.randrange(1, 20)):
            changed[dice.randrange(size)] = dice.randrange(256)
        return bytes(changed)
    if kind == 1:
        return content[:start] + content[end:]
    if kind == 2:
        return content[:end] + content[start:]
    if kind == 3:
        return content[:start] + dice.randbytes(end - start) + content[end:]
    return content[: size // 2 + dice.randrange(size // 2)]


def outcome(number: int, folder: Path) -> str:
    dice = random.Random(number)
    name = NAMES[number % len(NAMES)]
    path = folder / f"{number}-{name}"
    path.write_bytes(damaged((CORPUS / name).read_bytes(), dice))
    try:
        document = read_document(path)
    except InputError:
        return "refused"
    text = document.text or "\n".join(text for _, text in document.rows)
    left, source = fives(text), fives(source_of(name))
    if len(source & left) > 0.4 * len(source):
        return "read"
    noted = document.incomplete or any(word in " ".join(document.notes) for word in ("cut off", "left out"))
    return "noted" if noted or DETECTOR.detect(text).verdict == "uncertain" else "lost"


def fives(text: str) -> set[tuple[str, ...]]:
    """All runs of five words of a text."""
    words = text.split()
    return set(zip(*(words[at:] for at in range(5)), strict=False))


@pytest.mark.slow
def test_damaged_documents_are_refused_or_still_read(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(lambda number: outcome(number, tmp_path), range(FILES)))
    assert "lost" not in outcomes
    # the damage is real, and not always deadly
    assert min(outcomes.count("refused"), outcomes.count("read")) > FILES // 10
