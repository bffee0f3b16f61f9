"""`dgmark demo`: generation and detection in a few minutes, with a built-in model."""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dgmark.checkpoint.folder import BUILTIN, NARRATOR
from dgmark.cli.console import command_errors, needed_extra, stderr, stdout
from dgmark.cli.highlight import highlight, legend
from dgmark.detection.detector import Detector
from dgmark.detection.result import Detection
from dgmark.errors import MissingExtra, ModelNotFound, SettingsError
from dgmark.rows.whole_files import write_whole
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.models.network import NetworkDenoiser


@dataclass(frozen=True)
class Show:
    """The prompt of a model, and its decoding settings."""

    prompt: str
    length: int
    temperature: float
    chat: bool


SHOWS = {
    NARRATOR: Show("Write a short story about a lighthouse keeper who finds an old letter.", 240, 0.8, chat=True),
    BUILTIN: Show(
        "Once upon a time there was an old king who lived in a castle by the sea, and he had three daughters. "
        "One morning the youngest of them",
        128,
        1.0,
        chat=False,
    ),
}


@command_errors
def demo(
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Request to the narrator, or text for the storyteller to continue.", show_default="the demo's own"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Built-in model: narrator or storyteller.", show_default="the model of --key, else the narrator"
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Length of each text in tokens.", show_default="narrator 240, storyteller 128"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of both texts.")] = 1,
    key_file: Annotated[
        Path | None, typer.Option("--key", help="Key file to use instead of a new one.", show_default=False)
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Also save the output as an SVG picture to this file.", show_default=False)
    ] = None,
) -> None:
    """Generate a text with the mark of a new key and one without; look for the mark in both, then in a cut text."""
    with needed_extra("generate", "the demo"):
        from dgmark.decode import generate

    console = Console(record=True, width=112) if svg else stdout()
    loaded_key = None if key_file is None else WatermarkKey.load(key_file)
    name = model or (NARRATOR if loaded_key is None else loaded_key.spec.tokenizer)
    denoiser = _load(name, chosen=bool(model or loaded_key))
    key = WatermarkKey.generate(denoiser) if loaded_key is None else loaded_key
    show = SHOWS[denoiser.name]
    prompt = show.prompt if prompt is None else prompt
    origin = "new, secret" if loaded_key is None else "secret"
    console.print(Text.assemble("key     ", (key.fingerprint, "bold"), f"  ({origin}; this is its public fingerprint)"))
    console.print(Text.assemble("prompt  ", (prompt, "italic")))

    texts, seconds = [], []
    for one_key in (None, key):
        begin = time.perf_counter()
        (made,) = generate(
            denoiser,
            prompt,
            key=one_key,
            length=length or show.length,
            seed=seed,
            temperature=show.temperature,
            chat=show.chat,
        )
        texts.append(made.text)
        seconds.append(time.perf_counter() - begin)
    detector = Detector(key)
    plain, marked = (detector.detect(text) for text in texts)

    sides = Table.grid(padding=(0, 1), expand=True)
    sides.add_column(ratio=1)
    sides.add_column(ratio=1)
    sides.add_row(
        _panel("without the mark", texts[0], plain, detector, seconds[0]),
        _panel("with the mark", texts[1], marked, detector, seconds[1]),
    )
    console.print(sides)
    console.print(legend())
    cut = without_first_sentence(texts[1])
    console.print(_panel("with the mark, its front cut off", cut, detector.detect(cut), detector, None))
    console.print("Detection used the text and the key: no model, no prompt, no GPU.")
    if svg:
        # no fonts from another host, which rich would link
        picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="dgmark demo"), flags=re.DOTALL)
        write_whole(svg, picture)


def _load(name: str, *, chosen: bool) -> "NetworkDenoiser":
    """Load the model; the storyteller, if nobody chose the narrator and its base is unavailable."""
    from dgmark.models.load import load_model

    if name not in SHOWS:
        raise SettingsError(
            f"the demo runs a built-in model ({', '.join(SHOWS)}), not {name!r}; use `dgmark generate` for other models"
        )
    try:
        with stderr().status(f"loading the {name} (the narrator's base, 93 MB, is fetched once)"):
            return load_model(name)
    except (ModelNotFound, MissingExtra) as error:
        if chosen:
            raise
        stderr().print(f"the storyteller writes instead of the narrator: {error}", markup=False)
        return load_model(BUILTIN)


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
    return Panel(
        Text.assemble(highlight(text, detector.tokens(text, result)), verdict), title=title, border_style=style
    )
