"""Attacks on marked text, by name: each takes a text and a random generator, and returns the attacked text.

Other packages add theirs by an entry point in the group `dgmark_lab.attacks`, whose name is the attack's and whose
object is its class, a dataclass of its options.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np

from dgmark.errors import MissingExtra, SettingsError
from dgmark_lab.attacks.disguise import Homoglyphs, Ocr, Whitespace, ZeroWidth
from dgmark_lab.attacks.layout import RoundTrip, Wrap
from dgmark_lab.attacks.paraphrase import Dipper, Paraphrase
from dgmark_lab.attacks.published import Published
from dgmark_lab.attacks.refill import Refill
from dgmark_lab.attacks.rephrase import Rephrase
from dgmark_lab.attacks.synonyms import Synonyms
from dgmark_lab.attacks.text_edits import CopyPaste, Crop, Deletion, Insertion, Reorder, SentenceSwap, Substitution
from dgmark_lab.options import make

# (text, rng) -> the attacked text; the same generator state gives the same text
Attack = Callable[[str, np.random.Generator], str]
GROUP = "dgmark_lab.attacks"

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
    "synonyms": Synonyms,
    "refill": Refill,
    "rephrase": Rephrase,
    "dipper": Dipper,
    "paraphrase": Paraphrase,
}


@cache
def _added() -> dict[str, EntryPoint]:
    """The entry points of the attacks that other packages add, by name."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in ATTACKS}


def attack_names() -> list[str]:
    """The names of all attacks, the lab's own first."""
    return [*ATTACKS, *sorted(_added())]


def attack_kind(name: str) -> type[Any]:
    """The class of the attack of this name.

    Raises:
        SettingsError: no attack has this name.
        MissingExtra: the package that adds it cannot be used.
    """
    if name in ATTACKS:
        return ATTACKS[name]
    if name not in _added():
        raise SettingsError(f"there is no attack {name!r}; the attacks are: {', '.join(attack_names())}")
    point = _added()[name]
    try:
        kind: type[Any] = point.load()
        fields(kind)  # its options: it is a dataclass
    except Exception as error:  # whatever the code of another package raises
        raise MissingExtra(
            f"attack {name} of {point.value} cannot be used ({type(error).__name__}: {error}): mend its package, or "
            "remove it"
        ) from None
    return kind


def attack(name: str, **options: Any) -> Attack:
    """Return the attack of this name with these options.

    Args:
        name: one of `attack_names()`.
        options: fields of its class.

    Raises:
        SettingsError: no attack or option has this name, or a value is invalid; the attack raises it for what is not
            a text.
        MissingExtra: the package that adds the attack cannot be used.
    """
    instance: Attack = make(attack_kind(name), f"attack {name}", options)
    return instance


__all__ = ["ATTACKS", "Attack", "attack", "attack_kind", "attack_names"]
