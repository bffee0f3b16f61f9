"""An attack repeated on its own result: chained rewrites, as a patient user of any paraphraser would make them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dgmark.errors import SettingsError


@dataclass(frozen=True)
class Chain:
    """Make an attack several times, each time on the result of the last.

    By name: `attack("chain", of="paraphrase", rounds=5, **options_of_it)`.

    Attributes:
        each: the attack.
        rounds: how many times.
    """

    each: Callable[[str, np.random.Generator], str]
    rounds: int = 3

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise SettingsError(f"rounds {self.rounds} is not at least 1")

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the text after the last round."""
        for _ in range(self.rounds):
            text = self.each(text, rng)
        return text
