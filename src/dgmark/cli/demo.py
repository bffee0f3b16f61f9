"""`dgmark demo`: generation and detection with a built-in model."""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dgmark.checkpoint.folder import BUILTIN, NARRATOR
from dgmark.cli.console import command_errors, stderr, stdout, visible
from dgmark.decode.config import Settings
from dgmark.detection.detector import Detector
from dgmark.detection.rules import rule_test
from dgmark.detection.sentences import matches
from dgmark.errors import SettingsError
from dgmark.extras import needed_extra
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.models.loaded import LoadedModel


@dataclass(frozen=True)
class Show:
    """The prompt of a model, and its decoding settings.

    A mark makes text more diverse, so marked text has settings of its own. `marked` holds them by the rule of the key.
    """

    prompt: str
    chat: bool
    unmarked: Settings
    marked: dict[str, Settings]


SHOWS = {
    BUILTIN: Show(
        '"Where have you been all day?" asked the old woman, when the boy came home at last.\n'
        '"I have been to the mill, grandmother," said he.',
        chat=False,
        unmarked={"length": 192, "temperature": 1.0, "cache": "dual"},
        marked={
            "bigram": {"length": 192, "temperature": 0.5, "cache": "dual"},
            "position": {"length": 192, "temperature": 0.6, "cache": "dual"},
        },
    ),
    NARRATOR: Show(
        "Write a letter from a lighthouse keeper to his sister in the city.",
        chat=True,
        unmarked={"length": 240, "temperature": 0.9, "top_p": 0.95},
        marked={
            "bigram": {"length": 240, "temperature": 0.9, "top_p": 0.9},
            "position": {"length": 240, "temperature": 0.5, "top_p": 0.9},
        },
    ),
}
_SEED = 1
_MATCHED, _UNMATCHED, _UNSCORED = "green underline", "red", "dim"


@command_errors
def demo(
    prompt: Annotated[str | None, typer.Option(help="Text to continue, or request.", show_default="the demo's")] = None,
    model: Annotated[str | None, typer.Option(help="storyteller or narrator.", show_default="that of the key")] = None,
    key_file: Annotated[Path | None, typer.Option("--key", help="Key file to use instead of a new one.")] = None,
) -> None:
    """Generate a text with the mark of a new key and one without; look for the mark in both, then in a cut text.

    The marked text has decoding settings of its own, because a mark makes text more diverse.
    """
    with needed_extra("generate", "the demo"):
        from dgmark.decode import generate

    loaded_key = None if key_file is None else WatermarkKey.load(key_file)
    denoiser = _load(model or (BUILTIN if loaded_key is None else loaded_key.spec.tokenizer))
    key, origin = (WatermarkKey.generate(denoiser), "new, secret") if loaded_key is None else (loaded_key, "secret")
    show, detector, console = SHOWS[denoiser.name], Detector(key), stdout()
    prompt = show.prompt if prompt is None else prompt
    console.print(Text.assemble("key     ", (key.fingerprint, "bold"), f"  ({origin}; this is its public fingerprint)"))
    console.print(Text.assemble("prompt  ", (prompt, "italic")))

    sides = Table.grid(padding=(0, 1), expand=True)
    panels = []
    of_marked = show.marked.get(key.spec.rule, show.unmarked)
    for title, one_key, settings in (("without", None, show.unmarked), ("with", key, of_marked)):
        begin = time.perf_counter()
        (made,) = generate(denoiser, prompt, key=one_key, seed=_SEED, chat=show.chat, **settings)
        written = f", written in {time.perf_counter() - begin:.1f} s"
        panels.append(_panel(f"{title} the mark, temperature {settings['temperature']}", made.text, detector, written))
        sides.add_column(ratio=1)
    sides.add_row(*panels)
    console.print(sides)
    console.print(Text.assemble((rule_test(key).shown_match(), _MATCHED), "  ", ("other token", _UNMATCHED)))
    console.print(_panel("with the mark, its front cut off", without_first_sentence(made.text), detector))
    console.print("Detection used the text and the key: no model, no prompt, no GPU.")


def _load(name: str) -> "LoadedModel":
    from dgmark.models.load import load_model

    if name not in SHOWS:
        raise SettingsError(
            f"the demo runs a built-in model ({', '.join(SHOWS)}), not {name!r}; use `dgmark generate` for other models"
        )
    with stderr().status(f"loading the {name}" + (", whose base (93 MB) is fetched once" if name == NARRATOR else "")):
        return load_model(name)


def without_first_sentence(text: str) -> str:
    """`text` from its second sentence on; from its sixteenth word on if it has only one sentence."""
    end = re.search(r"[.!?][\"'”’]?\s+", text)
    if end is not None and text[end.end() :].strip():
        return text[end.end() :]
    return " ".join(text.split()[15:])


def _panel(title: str, text: str, detector: Detector, written: str = "") -> Panel:
    """A text with its matching tokens and its verdict; `written`: how long it took to write, in words."""
    result = detector.detect(text)
    style = "green" if result.verdict == "watermarked" else "default"
    shown = Text(visible(text, lines=True))
    for token in detector.tokens(text, result):
        colour = _UNSCORED if token.matched is None else _MATCHED if token.matched else _UNMATCHED
        shown.stylize(colour, token.start, token.end)
    what, number = matches(result)
    verdict = Text.assemble(
        "\n\n",
        (result.verdict, f"bold {style}"),
        f"  p = {result.p_value:.2g}, z = {result.z_score:.1f}, {number} {what} match{written}",
    )
    return Panel(shown + verdict, title=title, border_style=style)
