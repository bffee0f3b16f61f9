"""Attacks on marked text, by name: each takes a text and a random generator, and returns the attacked text."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dgmark.errors import SettingsError
from dgmark_lab.attacks.disguise import Homoglyphs, Ocr, Whitespace, ZeroWidth
from dgmark_lab.attacks.layout import RoundTrip, Wrap
from dgmark_lab.attacks.paraphrase import Dipper, Paraphrase
from dgmark_lab.attacks.published import Published
from dgmark_lab.attacks.refill import Refill
from dgmark_lab.attacks.text_edits import CopyPaste, Crop, Deletion, Insertion, Reorder, SentenceSwap, Substitution
from dgmark_lab.options import make

# (text, rng) -> the attacked text; the same generator state gives the same text
Attack = Callable[[str, np.random.Generator], str]


ATTACKS: dict[str, type[Any]] = {
    "substitution": Substitution,
    "deletion": Deletion,
    "insertion": Insertion,
    "reorder": Reorder,
    "crop": Crop,
    "copy-paste": CopyPaste,
    "sentence-swap": SentenceSwap,
    "homoglyphs": Homoglyphs,
    "whitespace": Whitespace,
    "zero-width": ZeroWidth,
    "ocr": Ocr,
    "wrap": Wrap,
    "document": RoundTrip,
    "published": Published,
    "refill": Refill,
    "dipper": Dipper,
    "paraphrase": Paraphrase,
}


def attack(name: str, **options: Any) -> Attack:
    """Return the attack of this name with these options.

    Args:
        name: one of `ATTACKS`.
        options: fields of its class.

    Raises:
        SettingsError: no attack or option has this name, or a value is invalid; the attack raises it for what is not
            a text.
    """
    if name not in ATTACKS:
        raise SettingsError(f"there is no attack {name!r}; the attacks are: {', '.join(ATTACKS)}")
    instance: Attack = make(ATTACKS[name], f"attack {name}", options)
    return instance


__all__ = ["ATTACKS", "Attack", "attack"]
