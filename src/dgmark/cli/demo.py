"""`dgmark demo`: the whole of it in one minute, on the built-in model."""

import re
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dgmark.cli.console import speaks, stdout
from dgmark.cli.highlight import highlight, legend
from dgmark.detector import Detection, Detector
from dgmark.errors import MissingExtra
from dgmark.key import WatermarkKey

PROMPT = (
    "Once upon a time there was an old king who lived in a castle by the sea, and he had three daughters. "
    "One morning the youngest of them"
)


@speaks
def demo(
    prompt: Annotated[str, typer.Option(help="What the built-in model continues.")] = PROMPT,
    length: Annotated[int, typer.Option(help="Response tokens.")] = 128,
    seed: Annotated[int, typer.Option(help="The same draws for both texts.")] = 1,
    key_file: Annotated[
        Path | None, typer.Option("--key", help="Key file to use instead of a new one.", show_default=False)
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Also save the picture of the terminal.", show_default=False)] = None,
) -> None:
    """Write one text without and one with the mark of a new key; detect both, then the marked one with a cut."""
    try:
        from dgmark.decode import generate
        from dgmark.models import load_model
    except ImportError as error:
        raise MissingExtra(f"the demo generates text: pip install 'dgmark[generate]' ({error})") from None

    console = Console(record=True, width=112) if svg else stdout()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "key.json" if key_file is None else key_file
        if key_file is None:
            WatermarkKey.generate().save(path)
        key = WatermarkKey.load(path)
    origin = "new, secret" if key_file is None else "secret"
    console.print(Text.assemble("key     ", (key.fingerprint, "bold"), f"  ({origin}; this is its public fingerprint)"))
    console.print(Text.assemble("prompt  ", (prompt, "italic")))

    model = load_model()
    texts, seconds = [], []
    for one_key in (None, key):
        begin = time.perf_counter()
        texts.append(generate(model, prompt, key=one_key, length=length, seed=seed)[0].text)
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
        # without rich's fonts, which lie on another host
        picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="dgmark demo"), flags=re.DOTALL)
        svg.write_text(picture, encoding="utf-8")


def without_first_sentence(text: str) -> str:
    """`text` from its second sentence on; from its sixteenth word on where it has but one."""
    end = re.search(r"[.!?][\"'”’]?\s+", text)
    if end is not None and text[end.end() :].strip():
        return text[end.end() :]
    return " ".join(text.split()[15:])


def _panel(title: str, text: str, found: Detection, detector: Detector, seconds: float | None) -> Panel:
    made = "" if seconds is None else f", written in {seconds:.1f} s"
    style = "green" if found.verdict == "watermarked" else "default"
    verdict = Text.assemble(
        "\n\n",
        (found.verdict, f"bold {style}"),
        f"  p = {found.p_value:.2g}, z = {found.z_score:.1f}, "
        f"{found.num_tokens_matched} of {found.num_tokens_scored} tokens match{made}",
    )
    shown = highlight(text, detector.tokens(text, found))
    return Panel(Text.assemble(shown, verdict), title=title, border_style=style)
