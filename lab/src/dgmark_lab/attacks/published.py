"""What publishing does to a text that nobody means to attack: editors, mail, web pages and typesetting.

The ways are what the programs do, written out; `document` writes and reads real files. Nothing here is random.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, get_args

import numpy as np
from pydantic.dataclasses import dataclass
from pyphen import Pyphen

from dgmark.arguments.contents import text_of
from dgmark_lab.attacks.layout import RoundTrip, Wrap

Way = Literal[
    "curly", "one-paragraph", "one-line-end", "lower-case", "title-case", "lines-of-72", "mail", "markdown", "html",
    "autocorrected", "latex",
]  # fmt: skip
WAYS: tuple[Way, ...] = get_args(Way)
_LATEX_WIDTH = 66  # characters of a line, as in LaTeX's article
_LIGATURES = {"ffi": "ﬃ", "ffl": "ﬄ", "ff": "ﬀ", "fi": "ﬁ", "fl": "ﬂ"}


@dataclass(frozen=True)
class Published:
    """Do to a text what publishing does.

    Attributes:
        way: "curly" (curly quotation marks, dashes, dots), "one-paragraph" (all white space is a space), "one-line-end"
            (paragraphs have no empty line between them), "lower-case", "title-case", "lines-of-72", "mail" (quoted in
            an answer, with a signature), "markdown" (the page that the text is shown as, copied), "html" (paragraphs of
            a page, copied), "autocorrected" (as a word processor does while one types), "latex" (typeset with hyphens
            and ligatures in lines, and copied from the PDF).
    """

    way: Way = "curly"

    def __call__(self, text: str, rng: np.random.Generator) -> str:  # noqa: ARG002 (every attack has this signature)
        """Return the published text."""
        return _WAYS[self.way](text_of(text))


def _curly(text: str) -> str:
    text = re.sub(r'(^|[\s(\[—–-])"', r"\1“", text).replace('"', "”")
    text = re.sub(r"(^|[\s(\[“—–-])'", r"\1‘", text).replace("'", "’")
    return text.replace("...", "…").replace("--", "—")


def _autocorrected(text: str) -> str:
    """Word's: curly marks, dashes between spaces, capitals at the beginnings of sentences, and of "i"."""
    text = _curly(text.replace(" - ", " – "))
    text = re.sub(r"\bi\b(?!\.)", "I", text)
    return re.sub(r"(^|\n|[.!?][”’]?\s+)([a-z])", lambda found: found[1] + found[2].upper(), text)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]


def _wrapped(text: str) -> str:
    return Wrap()("\n\n".join(_paragraphs(text)), np.random.default_rng())  # which draws nothing


def _mailed(text: str) -> str:
    quoted = "\n".join(f"> {line}".rstrip() for line in _wrapped(text).split("\n"))
    return f"On Tue, 3 Nov 2026 at 10:12, Anna Berg <anna@example.org> wrote:\n{quoted}\n\n-- \nJo Winter\nOffice 12\n"


def _typeset(text: str) -> str:
    text = _curly(text)
    for letters, ligature in _LIGATURES.items():
        text = text.replace(letters, ligature)
    return "\n\n".join("\n".join(_lines(paragraph)) for paragraph in _paragraphs(text))


def _lines(paragraph: str) -> Iterator[str]:
    """Full lines, whose last words are hyphenated where they would not fit."""
    line, words = "", paragraph.split()[::-1]
    while words:
        word = words.pop()
        room = _LATEX_WIDTH - len(line) - bool(line)
        if len(word) <= room or not line:
            line = f"{line} {word}".lstrip()
            continue
        parts = _hyphenation().wrap(word, room) if room > len("ab-") else None
        if parts:
            line, rest = f"{line} {parts[0]}", parts[1]
            words.append(rest)
        else:
            words.append(word)
        yield line
        line = ""
    yield line


@cache
def _hyphenation() -> Pyphen:
    return Pyphen(lang="en_US")


_WAYS: dict[Way, Callable[[str], str]] = {
    "curly": _curly,
    "one-paragraph": lambda text: " ".join(text.split()),
    "one-line-end": lambda text: re.sub(r"\n\s*\n", "\n", text),
    "lower-case": str.lower,
    "title-case": lambda text: re.sub(r"[^\W\d_]+(?:['’][^\W\d_]+)?", lambda word: word[0].capitalize(), text),
    "lines-of-72": _wrapped,
    "mail": _mailed,
    "markdown": lambda text: RoundTrip("markdown")(text, np.random.default_rng()),  # which draws nothing
    "html": lambda text: "\n\n".join(_paragraphs(text)),
    "autocorrected": _autocorrected,
    "latex": _typeset,
}
