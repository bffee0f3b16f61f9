"""What the result of a detection means, in sentences for people who know no statistics.

The report, the command line and `Detection.summary` all say it in these words.
"""

import math
from collections.abc import Iterable

from dgmark.detection.reading.disguises.readings import COLUMNS, LAYOUT, MARKUP, QUOTING, TYPOGRAPHY, WRAPPING
from dgmark.detection.results.finding import Finding

MIN_TOKENS = 200
ANY_SOURCE = "A text without this watermark may come from any other language model or from a person."
_NO_SECRET = "But this key has no secret (it is keyless): anybody can make this mark or remove it."  # noqa: S105
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
SHADED = "In them, tokens that match are shaded: the stronger, the more choice the language model saw there."
RAREST = 1e-15  # a rarer chance is told as this one
_DISGUISES = {
    "ansi": "codes for a terminal",
    "nfc": "letters in parts, such as separate accents",
    "invisible": "invisible characters",
    "compatibility": "mathematical or fullwidth letters",
    "homoglyphs": "look-alike letters of other alphabets",
    "whitespace": "no-break or repeated spaces, or tabs for spaces,",
    "capitals": "capitals alone",
}
_HEADINGS = {"watermarked": "Watermark{} found", "not_detected": "No watermark{} found", "uncertain": "Inconclusive"}
# signs without praise or blame: neither is a marked text right, nor an unmarked one wrong
_SYMBOLS = {"watermarked": "●", "not_detected": "○", "uncertain": "?"}


def summary(found: Finding) -> str:
    """The verdict, and for a text without the mark that this does not tell who or what wrote it."""
    verdict = verdict_sentence(found)
    return verdict if found.verdict == "watermarked" or found.spans else f"{verdict} {ANY_SOURCE}"


def rarity(p_value: float) -> str:
    """How rarely something of this probability happens, rounded so as to claim less: "1 in 7 million", or "90%".

    It ends at "1 in 1,000 trillion".
    """
    times = math.floor(1 / max(p_value, RAREST) * (1 + 1e-9))
    digits = 10 ** (len(str(times)) - 1)
    times = times // digits * digits
    if times == 1:
        return f"{math.ceil(100 * p_value - 1e-9)}%"
    return f"1 in {_times(times)}"


def _times(times: int) -> str:
    for scale, name in _SCALES:
        if times >= scale:
            return f"{times // scale:,} {name}"
    return f"{times:,}"


def heading(found: Finding) -> str:
    """The verdict in a few words."""
    known = found.verdict == "watermarked" or found.spans or found.keys_tested == 1
    of = f" of {found.key_name}" if known and found.key_name else ""
    part = f" in part ({percent_of(found.marked_share)} of the text)" if found.in_part else ""
    words = _HEADINGS["watermarked" if part else found.verdict].format(of) + part
    return f"{words}, in the part that was read" if found.incomplete else words


def percent_of(share: float | None) -> str:
    """A share of the text, rounded so as to claim less."""
    percent = math.floor(100 * (share or 0) + 1e-9)
    return f"{percent}%" if percent else "under 1%"


def symbol(found: Finding) -> str:
    """A sign for the verdict, so that its colour is not all that tells it."""
    return "◐" if found.in_part else _SYMBOLS[found.verdict]


def verdict_sentence(found: Finding, *, public: bool = False) -> str:
    """The verdict in one or two sentences; in public without how rare the match is, which helps those who remove the
    mark.
    """
    text = "the part of this text that was read" if found.incomplete else "this text"
    if found.verdict == "watermarked":
        chance = found.fpr if public else min(found.p_value, found.fpr)
        return f"{_finding(found, text)} " + (
            f"The chance that a text written without the key looks like this is at most {rarity(chance)}."
            if found.guaranteed
            else _NO_SECRET
        )
    if found.spans:
        return f"{_finding(found, text)} " + (
            f"The chance to find such a span in a text written without the key is at most {rarity(found.fpr)}."
            if found.guaranteed
            else _NO_SECRET
        )
    if found.verdict == "uncertain":
        return f"The test is inconclusive for this text: {_why(found)}{_disguises(found)}"
    if found.keys_tested > 1:
        return f"No watermark of the {found.keys_tested:,} keys was found in {text}.{_disguises(found)}"
    return f"The {_mark(found)} was not found in {text}.{_disguises(found)}"


def where(found: Finding) -> str:
    """Whether spans carry the mark by themselves; empty if they were not looked for, or this need not be said."""
    if found.spans is None:
        return ""
    spans = len(found.spans)
    if spans == 1:
        return "One span carries the watermark by itself; its edges are estimates."
    if spans:
        return f"{spans} spans carry the watermark by themselves; their edges are estimates."
    if found.verdict == "watermarked":
        return "No single span is strong enough to be shown by itself: how much of the text is marked is not known."
    return ""


def meaning(found: Finding) -> list[str]:
    """What the verdict means and what it does not, one sentence each."""
    sentences = []
    if found.verdict == "watermarked" or found.spans:
        if found.guaranteed:
            writer = "chosen by a language model that used this key"
            if found.key_name:
                writer = f"chosen by the assistant of {found.key_name}, or by another language model with its key"
            sentences.append(f"The watermark shows that words of this text, or of its marked parts, were {writer}.")
        if found.in_part:
            sentences.append(
                "Nothing follows for the unmarked rest: a person or another model may have written it, or it may be "
                "marked text that was edited, that repeats itself, or that is too short or too predictable to show the "
                "mark."
            )
        sentences.append(
            "It does not show who wrote the text first, who asked for it, or that its contents are true or false."
        )
    else:
        sentences.append(ANY_SOURCE)
        sentences.append("A watermark fades when a text is paraphrased, translated or heavily edited.")
        if found.uncertain_because is None and 0 < found.num_tokens_scored < MIN_TOKENS:
            sentences.append("The text is short: the shorter a marked text, the more often it is missed.")
    if (weights := found.figures.weights) is not None:
        sentences.append(
            f"Words counted by how much choice they left the writer, as the language model {weights.model} sees the "
            "text."
        )
    if found.disguised:
        undone = ", ".join(step for step in found.normalised if step not in LAYOUT)
        sentences.append(f"The text was cleaned of disguises before it was tested: {undone}.")
    return sentences + [said for name, said in _LAYOUT_UNDONE.items() if name in found.normalised]


_LAYOUT_UNDONE = {
    COLUMNS: "Its two columns were read one after the other.",
    QUOTING: "Signs of quoting before its lines, and the signature of a mail, were left out.",
    MARKUP: "Signs between its words, such as those of markup, were left out.",
    WRAPPING: "Line ends that only lay out the text's words in lines were read as spaces.",
    TYPOGRAPHY: "Its curly quotation marks, dashes and dots were read as they are typed.",
}


def counted(found: Finding) -> str:
    """How much of the text was tested."""
    scored, (what, _, number) = found.num_tokens_scored, found.counts
    pairs = ""
    if what == "pairs" and number:
        pairs = f", and {number:,} different pairs of them" if number > 1 else ", and one pair"
    return f"{scored:,} {found.units[scored != 1]}, which are words or parts of words{pairs}"


def matches(found: Finding) -> tuple[str, str]:
    """What is counted as matching, "pairs" or "tokens", and how many of how many: "350 of 555"."""
    what, matched, scored = found.counts
    return what, f"{matched:,} of {scored:,}"


def numbers_between(low: int, high: int) -> str:
    """Two numbers as a range, or one if they are equal: "278 to 311"."""
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def place(start: int, end: int) -> str:
    """Where [start, end) is, counted from 1, with the last one in it: "2 to 907"."""
    return f"{start + 1:,} to {end:,}"


def _finding(found: Finding, text: str) -> str:
    """What carries the mark: the text, spans of it, or, where no span is known, something in it."""
    spans = len(found.spans or ())
    if found.in_part:
        some = "A span" if spans == 1 else f"{spans} spans"
        carry = "carries" if spans == 1 else "carry"
        return f"{some} of {text} ({percent_of(found.marked_share)} of it) {carry} the {_mark(found)}."
    return (
        f"{text[0].upper()}{text[1:]} carries the {_mark(found)}."
        if spans
        else f"The {_mark(found)} was found in {text}."
    )


def _mark(found: Finding) -> str:
    name = f"{found.rule_title} " if found.rule_title else ""
    return f"{name}watermark of {found.key_name or f'key {found.key_fingerprint}'}"


def options_of(steps: Iterable[str]) -> str:
    """What undoes disguises in the shell: "--normalise nfc --normalise whitespace"."""
    return " ".join(f"--normalise {step}" for step in steps)


def _disguises(found: Finding) -> str:
    """What in the text can cost it a mark, and how to undo it; empty if there is little of that."""
    if not found.normalise_would_change:
        return ""
    steps = found.normalise_would_change
    named = " and ".join(_DISGUISES[step] for step in steps)
    one_key = " for one key" if found.keys_tested > 1 else ""
    return (
        f" But many of its words hold {named}, which can hide a watermark: test it again{one_key} with these undone, "
        f"by {options_of(steps)} on the command line or normalise={list(steps)} in Python and HTTP."
    )


def _why(found: Finding) -> str:
    match found.uncertain_because:
        case "empty":
            return "it holds nothing that can be tested."
        case "repetitive":
            return f"its {counted(found)}, repeat each other too much."
        case "unread":
            return "much of the document was not read or makes no words, and the watermark may stand there."
        case "not_shown":
            return "much of what was read is not shown by the document, and may hide the watermark of the rest."
        case "markup":
            return "signs of markup stand between many of its words, and may have cost it a watermark."
        case _:
            return f"with {counted(found)}, it is too short."
