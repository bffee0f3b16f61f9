"""What all functions that write texts say of a text: what it is, and everything that determined it."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dgmark.decode.config import Settings
from dgmark.decode.steps.canvas import Trace
from dgmark.decode.texts.own_check import Check
from dgmark.decode.texts.requests import Request
from dgmark.detection.detector import DEFAULT_FPR
from dgmark.detection.results.figures import Verdict
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.watermark.key import WatermarkKey


class MarkWarning(UserWarning):
    """Texts name a key, and will not be found with it."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """A text that a model wrote.

    Attributes:
        text: the text, without special tokens.
        token_ids: its ids; of a generation those before the first end token.
        seed: seed of this row: the same prompt, seed and sub-key give the same row, whatever its neighbours.
        model: the model's name.
        dtype: number format of the forward; None if the model does not state it.
        key_fingerprint: fingerprint of the key; None without a mark.
        settings: the decoding settings.
        trace: the commits in the order they were made.
        subkey: the number of the sub-key that the text is marked with; None for a key without sub-keys.
        choices: how many of the tokens had a choice, which is where a mark can be (`Trace`).
        check: what a checker with the same key finds in the text; None if it was not checked.
    """

    text: str
    token_ids: list[int]
    seed: int
    model: str
    dtype: str | None
    key_fingerprint: str | None
    settings: Settings
    trace: Trace
    subkey: int | None = None
    choices: int = 0
    check: Check | None = None

    def _row_of(self, row_id: str, names: Sequence[str], schema: int) -> dict[str, Any]:
        """A JSON row of these fields and those of every text but the trace."""
        row = {"id": row_id} | {name: getattr(self, name) for name in (*names, "choices", "settings")}
        row |= {} if self.check is None else {"check": asdict(self.check)}
        return row | {"schema": schema}


def shared_fields(model: Denoiser, key: WatermarkKey | None, settings: Settings) -> dict[str, Any]:
    """The fields of `Written` that all texts of one call share."""
    traits = traits_of(model)
    fingerprint = None if key is None else key.fingerprint
    return {"model": traits.name, "dtype": traits.number_format, "key_fingerprint": fingerprint, "settings": settings}


def written_fields(model: Denoiser, request: Request, settings: Settings, trace: Trace) -> dict[str, Any]:
    """The fields of `Written` that are known of every request, with the decoding settings and its commits."""
    own = {"seed": request.seed, "trace": trace, "subkey": request.subkey}
    return own | shared_fields(model, request.key, settings)


@dataclass
class MarkTally:
    """Counts, over one run, the texts that name a key and that will not be found with it.

    Attributes:
        marked: the texts that name a key and have tokens.
        without_choice: those of them of which no token had a choice.
        checked: those of them that were checked.
        found: those of these whose verdict is `watermarked`.
        remasked: whether a text was there before, and a share of it was replaced.
    """

    marked: int = 0
    without_choice: int = 0
    checked: int = 0
    found: int = 0
    remasked: bool = False

    @classmethod
    def of(cls, texts: Iterable[Written]) -> "MarkTally":
        """The tally of texts."""
        tally = cls()
        for text in texts:
            tally.add(text)
        return tally

    def add(self, text: Written) -> None:
        """Count one text."""
        marked = text.key_fingerprint is not None and bool(text.token_ids)
        verdict = None if text.check is None else text.check.verdict
        self.remasked |= getattr(text, "remasking", None) is not None
        self.count(marked=marked, choices=text.choices, verdict=verdict)

    def count(self, *, marked: bool, choices: int, verdict: Verdict | None) -> None:
        """Count a text that names a key or not, with so many choices; the verdict is that of its check."""
        if marked:
            self.marked += 1
            self.without_choice += not choices
        if verdict is not None:
            self.checked += 1
            self.found += verdict == "watermarked"

    @property
    def problem(self) -> str | None:
        """What will not be found, why, and what to do; None if nothing is known to be missing."""
        if self.found < self.checked:
            problem = f"{self.checked - self.found} of {self.checked} texts will not be found with this key at a "
            problem += f"false-positive rate of {DEFAULT_FPR:g}"
            if self.without_choice:
                problem += f"; in {self.without_choice} of them no token had a choice"
        elif self.marked and self.without_choice == self.marked:
            problem = "no token had a choice, so what was written names a key and bears no mark"
        else:
            return None
        share = ", or replace a larger share" if self.remasked else ""
        return f"{problem}: write longer texts, or allow more choice (temperature, top_k, top_p){share}"

    def warn(self) -> None:
        """Warn of what will not be found."""
        if self.problem is not None:
            warnings.warn(self.problem, MarkWarning, stacklevel=3)
