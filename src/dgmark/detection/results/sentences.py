"""What the result of a detection means, in sentences for people who know no statistics.

The report, the command line and the service say it in these words, after the verdict in those of `Detection`.
"""

from dgmark.detection.reading.disguises.readings import COLUMNS, LAYOUT, MARKUP, QUOTING, TYPOGRAPHY, WRAPPING
from dgmark.detection.results.detection import ANY_SOURCE, Detection
from dgmark.detection.results.words import percent_of

MIN_TOKENS = 200
SHADED = "In them, tokens that match are shaded: the stronger, the more choice the language model saw there."
_HEADINGS = {"watermarked": "Watermark{} found", "not_detected": "No watermark{} found", "uncertain": "Inconclusive"}
# signs without praise or blame: neither is a marked text right, nor an unmarked one wrong
_SYMBOLS = {"watermarked": "●", "not_detected": "○", "uncertain": "?"}
_LAYOUT_UNDONE = {
    COLUMNS: "Its two columns were read one after the other.",
    QUOTING: "Signs of quoting before its lines, and the signature of a mail, were left out.",
    MARKUP: "Signs between its words, such as those of markup, were left out.",
    WRAPPING: "Line ends that only lay out the text's words in lines were read as spaces.",
    TYPOGRAPHY: "Its curly quotation marks, dashes and dots were read as they are typed.",
}


def heading(found: Detection) -> str:
    """The verdict in a few words."""
    known = found.verdict == "watermarked" or found.spans or found.keys_tested == 1
    of = f" of {found.key_name}" if known and found.key_name else ""
    part = f" in part ({percent_of(found.marked_share)} of the text)" if found.in_part else ""
    words = _HEADINGS["watermarked" if part else found.verdict].format(of) + part
    return f"{words}, in the part that was read" if found.incomplete else words


def symbol(found: Detection) -> str:
    """A sign for the verdict, so that its colour is not all that tells it."""
    return "◐" if found.in_part else _SYMBOLS[found.verdict]


def where(found: Detection) -> str:
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


def meaning(found: Detection) -> list[str]:
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


def matches(found: Detection) -> tuple[str, str]:
    """What is counted as matching, "pairs" or "tokens", and how many of how many: "350 of 555"."""
    what, matched, scored = found.counts
    return what, f"{matched:,} of {scored:,}"
