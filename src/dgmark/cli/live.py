"""A text as it is decoded, in the terminal."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dgmark.cli.console import stderr
from dgmark.errors import InputError
from dgmark.rows.jsonl import BadRow, Row
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.decode import DecodeConfig
    from dgmark.lab.baselines import Scheme
    from dgmark.models.network import NetworkDenoiser

_MASK = "░"


def show_stream(
    model: "NetworkDenoiser",
    config: "DecodeConfig",
    key: WatermarkKey | None,
    scheme: "Scheme | None",
    item: "tuple[str, str | list[int], int] | BadRow",
    with_trace: bool,
    chat: bool,
    emit: Callable[[list[Row]], None],
) -> None:
    """Decode one prompt, its canvas shown on stderr if that is a terminal; then hand the row on.

    Tokens that match are green, others plain (a scheme without matching sets has no plain ones); what is masked is
    shaded.
    """
    from rich.live import Live
    from rich.text import Text

    from dgmark.decode import Committed, RowFinished, stream

    if isinstance(item, BadRow):
        raise InputError(item.error)
    row_id, prompt, seed = item
    pieces = [Text(_MASK, style="dim") for _ in range(config.length)]
    console = stderr()
    with Live(console=console, transient=True, refresh_per_second=12) as live:
        for event in stream(model, [prompt], key=key, scheme=scheme, seed=seed, chat=chat, **config.to_dict()):
            if isinstance(event, Committed):
                for position, token, matched in zip(event.positions, event.token_ids, event.matched, strict=True):
                    style = "green" if matched and key is not None else "default"
                    pieces[position] = Text(model.tokenizer.decode([token]), style=style)
                if console.is_terminal:
                    live.update(Text.assemble(*pieces))
            elif isinstance(event, RowFinished):
                emit([event.generation.to_row(row_id, with_trace=with_trace)])
