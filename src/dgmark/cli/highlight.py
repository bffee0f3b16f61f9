"""A text with its matches highlighted by colour and underline, so that colour alone never carries the meaning."""

from rich.text import Text

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.detection.result import ScoredToken

MATCHED = "green underline"
UNMATCHED = "red"
UNSCORED = "dim"


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
