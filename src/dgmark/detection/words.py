"""What a detection means, in sentences for people who do not know statistics.

The report, the command line and `Detection.summary` all say it in these words.
"""

import math
from typing import Literal, Protocol, runtime_checkable

FEW_TOKENS = 200
Limit = Literal["empty", "short", "repetitive"]
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_RAREST = 10**15
_HEADINGS = {
    "watermarked": "Watermark found",
    "not_detected": "No watermark found",
    "uncertain": "No statement possible",
}
_SYMBOLS = {"watermarked": "✓", "not_detected": "–", "uncertain": "?"}


@runtime_checkable
class Finding(Protocol):
    """What of a detection is put into words; see `Detection`."""

    @property
    def verdict(self) -> str: ...  # noqa: D102
    @property
    def p_value(self) -> float: ...  # noqa: D102
    @property
    def fpr(self) -> float: ...  # noqa: D102
    @property
    def num_tokens_scored(self) -> int: ...  # noqa: D102
    @property
    def key_fingerprint(self) -> str: ...  # noqa: D102
    @property
    def guaranteed(self) -> bool: ...  # noqa: D102
    @property
    def normalised(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def keys_tested(self) -> int: ...  # noqa: D102
    @property
    def scheme(self) -> str: ...  # noqa: D102
    @property
    def uncertain_because(self) -> Limit | None: ...  # noqa: D102


def rarity(p_value: float) -> str:
    """How rarely something of this probability happens, rounded so as to claim less: "once in 7 million times".

    Args:
        p_value: a probability in (0, 1].
    """
    times = min(_RAREST, math.floor(1 / p_value * (1 + 1e-9)))
    digits = 10 ** (len(str(times)) - 1)
    times = times // digits * digits
    if times == 1:
        return "almost every time"
    for scale, name in _SCALES:
        if times >= scale:
            return f"once in {'a' if times == scale else f'{times // scale:,}'} {name} times"
    return f"once in {times:,} times"


def heading(found: Finding, *, passages: int = 0) -> str:
    """The verdict in two to five words; `passages`: number of passages that carry the mark by themselves."""
    return "Watermark found in part" if passages and found.verdict != "watermarked" else _HEADINGS[found.verdict]


def symbol(found: Finding, *, passages: int = 0) -> str:
    """A sign for the verdict, so that its colour is not all that tells it; see `heading`."""
    return "◐" if passages and found.verdict != "watermarked" else _SYMBOLS[found.verdict]


def verdict_sentence(found: Finding, *, passages: int = 0, public: bool = False) -> str:
    """The verdict in one or two sentences.

    Args:
        found: the detection.
        passages: number of passages that carry the mark by themselves.
        public: leave out how rare the match is, which helps those who remove the mark.
    """
    if found.verdict == "watermarked":
        chance = found.fpr if public else min(found.p_value, found.fpr)
        return f"This text carries {_mark(found)}. " + (
            f"A text written without the key would look like this at most {rarity(chance)}."
            if found.guaranteed
            else _NO_SECRET
        )
    if passages:
        some = "A passage" if passages == 1 else f"{passages} passages"
        carry = "carries" if passages == 1 else "carry"
        return f"{some} of this text {carry} {_mark(found)}. " + (
            f"In a text written without the key, such a passage would be found at most {rarity(found.fpr)}."
            if found.guaranteed
            else _NO_SECRET
        )
    if found.verdict == "uncertain":
        return f"This text does not allow a statement: {_too_little(found)}"
    if found.keys_tested > 1:
        return f"No watermark of the {found.keys_tested:,} keys was found in this text."
    mark = _mark(found)
    return f"{mark[0].upper()}{mark[1:]} was not found in this text."


def where(found: Finding, *, passages: int) -> str:
    """Whether passages carry the mark by themselves; empty if this need not be said."""
    if passages == 1:
        return "One passage carries the watermark by itself; its edges are estimates."
    if passages:
        return f"{passages} passages carry the watermark by themselves; their edges are estimates."
    if found.verdict == "watermarked" and not found.normalised:
        return "The text as a whole carries the watermark; no single passage is strong enough to be shown by itself."
    return ""


def meaning(found: Finding, *, passages: int = 0) -> list[str]:
    """What the verdict means and what it does not, one sentence each."""
    sentences = []
    if found.verdict == "watermarked" or passages:
        if found.guaranteed:
            sentences.append(
                "The watermark shows that the words, or most of those marked here, were chosen by a language model "
                "that used this key."
            )
        sentences.append("It does not show who asked for the text, or that its contents are true or false.")
    else:
        sentences.append(ANY_SOURCE)
        sentences.append("A watermark fades when a text is paraphrased, translated or heavily edited.")
        if found.uncertain_because != "short" and 0 < found.num_tokens_scored < FEW_TOKENS:
            sentences.append(
                f"The text is very short: below {FEW_TOKENS} tokens (words or parts of words) even a marked text is "
                "often missed."
            )
    if found.normalised:
        sentences.append(f"The text was cleaned of disguises before it was tested: {', '.join(found.normalised)}.")
    return sentences


def summary(found: Finding, *, passages: int = 0) -> str:
    """The verdict, and for a text without the mark that this does not tell who or what wrote it."""
    verdict = verdict_sentence(found, passages=passages)
    return verdict if found.verdict == "watermarked" or passages else f"{verdict} {ANY_SOURCE}"


def counted(found: Finding) -> str:
    """How much of the text was tested."""
    scored = found.num_tokens_scored
    if found.scheme != "dgmark":
        return f"{scored:,} tokens or groups of tokens, which are words or parts of words"
    return f"{scored:,} token{'' if scored == 1 else 's'}, which are words or parts of words"


ANY_SOURCE = "A text without this watermark may come from any other language model or from a person."
_NO_SECRET = "But this key has no secret (it is keyless): anybody can make this mark or remove it."  # noqa: S105


def _mark(found: Finding) -> str:
    scheme = "" if found.scheme == "dgmark" else f"{found.scheme} "
    return f"the {scheme}watermark of key {found.key_fingerprint}"


def _too_little(found: Finding) -> str:
    match found.uncertain_because:
        case "empty":
            return "it holds nothing that can be tested."
        case "repetitive":
            return f"its {counted(found)}, repeat each other too much."
        case _:
            return f"with {counted(found)}, it is too short."
