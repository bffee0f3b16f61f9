"""A text with its matches or passages highlighted, so that colour alone never carries the meaning."""

from collections.abc import Sequence

from rich.text import Text

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.detection.result import ScoredToken, Span

MATCHED = "green underline"
UNMATCHED = "red"
UNSCORED = "dim"
IN_PASSAGE = "green"
# a passage where nothing can be underlined
OPEN, CLOSE = "[[marked {}: ", "]]"


def highlight(text: str, tokens: list[ScoredToken]) -> Text:
    """`text` with each token styled by whether it matches."""
    highlighted = Text(well_formed(text))
    for token in tokens:
        style = UNSCORED if token.matched is None else MATCHED if token.matched else UNMATCHED
        highlighted.stylize(style, token.start, token.end)
    return highlighted


def legend() -> Text:
    """The meaning of the styles."""
    return Text.assemble(("matching token", MATCHED), "  ", ("other token", UNMATCHED))


def show_passages(text: str, spans: Sequence[Span], tokens: Sequence[ScoredToken] = (), *, styled: bool) -> Text:
    """`text` with its marked passages.

    Args:
        text: the text.
        spans: its passages, in order.
        tokens: if given, only the matching tokens of a passage are underlined.
        styled: underline them; otherwise they stand between plain characters.
    """
    text = well_formed(text)
    if not styled:
        pieces, last = [], 0
        for number, span in enumerate(spans, 1):
            pieces += [text[last : span.start], OPEN.format(number), text[span.start : span.end], CLOSE]
            last = span.end
        return Text("".join([*pieces, text[last:]]))
    shown = Text(text)
    for span in spans:
        shown.stylize(IN_PASSAGE if tokens else MATCHED, span.start, span.end)
    for token in tokens:
        if token.matched and any(span.start <= token.start < span.end for span in spans):
            shown.stylize("underline", token.start, token.end)
    return shown


def passage_legend(styled: bool, tokens: bool) -> Text:
    """The meaning of what `show_passages` adds to a text."""
    if not styled:
        return Text(f"(marked passages stand in {OPEN.format('N').rstrip()} ... {CLOSE})")
    if tokens:
        return Text.assemble(("marked passage", IN_PASSAGE), "  ", ("matching token in it", MATCHED))
    return Text("marked passage", style=MATCHED)
