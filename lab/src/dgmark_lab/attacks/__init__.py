"""Attacks on marked text, by name: each takes a text and a random generator, and returns the attacked text."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from dgmark.errors import SettingsError
from dgmark_lab.attacks.disguise import Homoglyphs, Whitespace, ZeroWidth
from dgmark_lab.attacks.paraphrase import Dipper, Paraphrase
from dgmark_lab.attacks.refill import Refill
from dgmark_lab.attacks.text_edits import CopyPaste, Crop, Deletion, Insertion, SentenceSwap, Substitution, Synonyms
from dgmark_lab.options import make

# (text, rng) -> the attacked text; the same generator state gives the same text
Attack = Callable[[str, np.random.Generator], str]


@dataclass(frozen=True)
class Chain:
    """Make an attack several times, each time on the result of the last.

    By name: `attack("chain", of="paraphrase", rounds=5, **options_of_it)`.

    Attributes:
        each: the attack.
        rounds: how many times.
    """

    each: Any
    rounds: Annotated[int, Field(ge=1)] = 3

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the text after the last round."""
        for _ in range(self.rounds):
            text = self.each(text, rng)
        return text


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
        MissingExtra: the attack needs data that is not installed.
    """
    if name not in ATTACKS:
        raise SettingsError(f"there is no attack {name!r}; the attacks are: {', '.join(ATTACKS)}")
    if name == "chain":
        of = options.pop("of", None)
        if of is None:
            raise SettingsError("chain needs the name of the attack to repeat: give of=NAME")
        rounds = {"rounds": options.pop("rounds")} if "rounds" in options else {}
        options = {"each": attack(of, **options), **rounds}
    instance: Attack = make(ATTACKS[name], f"attack {name}", options)
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
    if name == "chain":
        return {"of": "NAME", "rounds": Chain.rounds}
    defaults = {}
    for field in fields(ATTACKS[name]):
        defaults[field.name] = field.default_factory() if field.default_factory is not MISSING else field.default
    return defaults


__all__ = ["ATTACKS", "Attack", "attack", "defaults_of", "options_of"]
