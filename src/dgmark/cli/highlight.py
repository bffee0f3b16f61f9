"""A text with its matches shown: colour and underline, so that neither alone carries the meaning."""

from rich.text import Text

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.detection.result import ScoredToken

MATCHED = "green underline"
UNMATCHED = "red"
UNSCORED = "dim"


def highlight(text: str, tokens: list[ScoredToken]) -> Text:
    """`text` with each token styled by whether it matched."""
    shown = Text(well_formed(text))
    for token in tokens:
        style = UNSCORED if token.matched is None else MATCHED if token.matched else UNMATCHED
        shown.stylize(style, token.start, token.end)
    return shown


def legend() -> Text:
    """What the styles mean."""
    return Text.assemble(("matching token", MATCHED), "  ", ("other token", UNMATCHED))
