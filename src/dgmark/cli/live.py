"""Show a text in the terminal while it is decoded."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dgmark.cli.console import stderr

if TYPE_CHECKING:
    from dgmark.decode import Event, Generation
    from dgmark.models.denoiser import Denoiser

_MASK = "░"


def show_stream(model: "Denoiser", length: int, events: "Iterable[Event]", *, marked: bool) -> "Generation":
    """Show the canvas of one text on stderr, if that is a terminal, and return the finished text.

    Matching tokens are green, other tokens plain, masked positions shaded. With a scheme that has no matching sets all
    tokens are green.

    Args:
        model: the model, whose tokenizer decodes the tokens.
        length: number of response tokens.
        events: events of the decoding.
        marked: whether the text is marked; an unmarked text has no green tokens.
    """
    from rich.live import Live
    from rich.text import Text

    from dgmark.decode import Committed, RowFinished

    pieces = [Text(_MASK, style="dim") for _ in range(length)]
    console = stderr()
    with Live(console=console, transient=True, refresh_per_second=12, redirect_stdout=sys.stdout.isatty()) as live:
        for event in events:
            if isinstance(event, Committed):
                for position, token, matched in zip(event.positions, event.token_ids, event.matched, strict=True):
                    style = "green" if matched and marked else "default"
                    pieces[position] = Text(model.tokenizer.decode([token]), style=style)
                if console.is_terminal:
                    live.update(Text.assemble(*pieces))
            elif isinstance(event, RowFinished):
                generation = event.generation
    return generation
