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
from dgmark.checkpoint.tokenizer import well_formed
from dgmark.cli.console import command_errors, needed_extra, stderr, stdout
from dgmark.decode.config import Settings
from dgmark.detection.detector import Detector
from dgmark.detection.result import Detection
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.models.load import NetworkDenoiser


@dataclass(frozen=True)
class Show:
    """The prompt of a model, and its decoding settings.

    Steering gives up the sharpening of decoding by confidence, so marked text is drawn at a lower temperature: the one
    that suits the position code of new keys.
    """

    prompt: str
    length: int
    chat: bool
    unmarked: Settings
    marked: Settings


SHOWS = {
    BUILTIN: Show(
        '"Where have you been all day?" asked the old woman, when the boy came home at last.\n'
        '"I have been to the mill, grandmother," said he.',
        192,
        chat=False,
        unmarked={"temperature": 1.0, "cache": "dual"},
        marked={"temperature": 0.6, "cache": "dual"},
    ),
    NARRATOR: Show(
        "Write a letter from a lighthouse keeper to his sister in the city.",
        240,
        chat=True,
        unmarked={"temperature": 0.9, "top_p": 0.95},
        marked={"temperature": 0.5, "top_p": 0.9},
    ),
}
_MATCHED, _UNMATCHED, _UNSCORED = "green underline", "red", "dim"


@command_errors
def demo(
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Text for the storyteller to continue, or request to the narrator.", show_default="the demo's own"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Built-in model: storyteller or narrator.", show_default="the model of --key, else the storyteller"
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Length of each text in tokens.", show_default="storyteller 192, narrator 240"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of both texts.")] = 1,
    key_file: Annotated[Path | None, typer.Option("--key", help="Key file to use instead of a new one.")] = None,
) -> None:
    """Generate a text with the mark of a new key and one without; look for the mark in both, then in a cut text.

    The marked text is drawn at a lower temperature, because steering makes text more varied.
    """
    with needed_extra("generate", "the demo"):
        from dgmark.decode import generate

    console = stdout()
    loaded_key = None if key_file is None else WatermarkKey.load(key_file)
    denoiser = _load(model or (BUILTIN if loaded_key is None else loaded_key.spec.tokenizer))
    key = WatermarkKey.generate(denoiser) if loaded_key is None else loaded_key
    show = SHOWS[denoiser.name]
    prompt = show.prompt if prompt is None else prompt
    origin = "new, secret" if loaded_key is None else "secret"
    console.print(Text.assemble("key     ", (key.fingerprint, "bold"), f"  ({origin}; this is its public fingerprint)"))
    console.print(Text.assemble("prompt  ", (prompt, "italic")))

    texts, seconds = [], []
    for one_key, settings in ((None, show.unmarked), (key, show.marked)):
        options: Settings = {**settings, "length": length or show.length}
        begin = time.perf_counter()
        (made,) = generate(denoiser, prompt, key=one_key, seed=seed, chat=show.chat, **options)
        texts.append(made.text)
        seconds.append(time.perf_counter() - begin)
    detector = Detector(key)
    plain, marked = (detector.detect(text) for text in texts)

    sides = Table.grid(padding=(0, 1), expand=True)
    sides.add_column(ratio=1)
    sides.add_column(ratio=1)
    sides.add_row(
        _panel(f"without the mark, {_sampling(show.unmarked)}", texts[0], plain, detector, seconds[0]),
        _panel(f"with the mark, {_sampling(show.marked)}", texts[1], marked, detector, seconds[1]),
    )
    console.print(sides)
    console.print(Text.assemble(("matching token", _MATCHED), "  ", ("other token", _UNMATCHED)))
    cut = without_first_sentence(texts[1])
    console.print(_panel("with the mark, its front cut off", cut, detector.detect(cut), detector, None))
    console.print("Detection used the text and the key: no model, no prompt, no GPU.")


def _load(name: str) -> "NetworkDenoiser":
    from dgmark.models.load import load_model

    if name not in SHOWS:
        raise SettingsError(
            f"the demo runs a built-in model ({', '.join(SHOWS)}), not {name!r}; use `dgmark generate` for other models"
        )
    with stderr().status(f"loading the {name}" + (", whose base (93 MB) is fetched once" if name == NARRATOR else "")):
        return load_model(name)


def _sampling(settings: Settings) -> str:
    named = {"temperature": settings.get("temperature"), "top-p": settings.get("top_p")}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)


def without_first_sentence(text: str) -> str:
    """`text` from its second sentence on; from its sixteenth word on if it has only one sentence."""
    end = re.search(r"[.!?][\"'”’]?\s+", text)
    if end is not None and text[end.end() :].strip():
        return text[end.end() :]
    return " ".join(text.split()[15:])


def _panel(title: str, text: str, result: Detection, detector: Detector, seconds: float | None) -> Panel:
    time_taken = "" if seconds is None else f", written in {seconds:.1f} s"
    style = "green" if result.verdict == "watermarked" else "default"
    verdict = Text.assemble(
        "\n\n",
        (result.verdict, f"bold {style}"),
        f"  p = {result.p_value:.2g}, z = {result.z_score:.1f}, "
        f"{result.num_tokens_matched} of {result.num_tokens_scored} tokens match{time_taken}",
    )
    shown = Text(well_formed(text))
    for token in detector.tokens(text, result):
        shown.stylize(
            _UNSCORED if token.matched is None else _MATCHED if token.matched else _UNMATCHED, token.start, token.end
        )
    return Panel(Text.assemble(shown, verdict), title=title, border_style=style)
