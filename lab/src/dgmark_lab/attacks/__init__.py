"""Attacks on marked text, by name: each takes a text and a random generator, and returns the attacked text.

Attacks that edit text need no torch; attacks that use a model import it when they are called.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from dgmark.errors import SettingsError
from dgmark_lab.attacks.chain import Chain
from dgmark_lab.attacks.dipper import Dipper
from dgmark_lab.attacks.disguise import Homoglyphs, Whitespace, ZeroWidth
from dgmark_lab.attacks.paraphrase import Paraphrase
from dgmark_lab.attacks.refill import Refill
from dgmark_lab.attacks.synonyms import Synonyms
from dgmark_lab.attacks.text_edits import CopyPaste, Crop, Deletion, Insertion, SentenceSwap, Substitution

# (text, rng) -> the attacked text; the same generator state gives the same text
Attack = Callable[[str, np.random.Generator], str]

ATTACKS: dict[str, type[Any]] = {
    "substitution": Substitution,
    "deletion": Deletion,
    "insertion": Insertion,
    "crop": Crop,
    "copy-paste": CopyPaste,
    "sentence-swap": SentenceSwap,
    "homoglyphs": Homoglyphs,
    "whitespace": Whitespace,
    "zero-width": ZeroWidth,
    "synonyms": Synonyms,
    "refill": Refill,
    "dipper": Dipper,
    "paraphrase": Paraphrase,
    "chain": Chain,
}


def attack(name: str, **options: Any) -> Attack:
    """Return the attack of this name with these options.

    Args:
        name: one of `ATTACKS`.
        options: fields of its class; "chain" takes `of` (the name of an attack), `rounds`, and that attack's options.

    Raises:
        SettingsError: no attack or option has this name, or a value is invalid.
        MissingExtra: the attack needs a package or data that is not installed.
    """
    if name not in ATTACKS:
        raise SettingsError(f"there is no attack {name!r}; the attacks are: {', '.join(ATTACKS)}")
    if name == "chain":
        of = options.pop("of", None)
        if of is None:
            raise SettingsError("chain needs the name of the attack to repeat: give of=NAME")
        rounds = {"rounds": options.pop("rounds")} if "rounds" in options else {}
        options = {"each": attack(of, **options), **rounds}
    known = [field.name for field in fields(ATTACKS[name])]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise SettingsError(f"{name} has no option {', '.join(unknown)}; its options are: {', '.join(known)}")
    instance: Attack = ATTACKS[name](**options)
    return instance


def options_of(instance: Attack) -> dict[str, Any]:
    """Return an attack's options as JSON values, defaults included; a model or tokenizer appears by its name."""
    return {field.name: _plain(getattr(instance, field.name)) for field in fields(instance)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | dict):
        return value
    names = [name for name, kind in ATTACKS.items() if type(value) is kind]
    return {"attack": names[0], **options_of(value)} if names else str(getattr(value, "name", type(value).__name__))


def defaults_of(name: str) -> dict[str, Any]:
    """Return the options of the attack `name` with their defaults."""
    defaults = {}
    for field in fields(ATTACKS[name]):
        defaults[field.name] = field.default_factory() if field.default_factory is not MISSING else field.default
    return defaults


def describe(name: str) -> str:
    """Describe an attack in one line."""
    return (ATTACKS[name].__doc__ or "").splitlines()[0]


__all__ = ["ATTACKS", "Attack", "attack", "defaults_of", "describe", "options_of"]
