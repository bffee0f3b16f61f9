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
from dgmark.cli.bar import row_bar
from dgmark.cli.console import command_errors, stderr, stdout, visible
from dgmark.decode.config import Settings
from dgmark.detection.detector import Detector
from dgmark.detection.results.detection import Detection, verdict_sentence
from dgmark.detection.results.sentences import heading, matches
from dgmark.detection.results.words import rarity
from dgmark.detection.statistics.rules import rule_test
from dgmark.errors import ModelNotFound, SettingsError, needed_extra
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.models.loaded import LoadedModel


@dataclass(frozen=True)
class Show:
    """The prompt of a model, and its decoding settings.

    A mark makes text more diverse, so marked text may have settings of its own. `marked` holds them by the rule of the
    key.
    """

    prompt: str
    chat: bool
    unmarked: Settings
    marked: dict[str, Settings]


# both texts at once, which takes a third less time: a bias moves no text without a mark
_FROM_THE_LEFT: Settings = {
    "length": 144, "temperature": 0.9, "top_p": 0.9, "strategy": "left_to_right", "bias": 3.0
}  # fmt: skip
SHOWS = {
    BUILTIN: Show(
        '"Where have you been all day?" asked the old woman, when the boy came home at last.\n'
        '"I have been to the mill, grandmother," said he.',
        chat=False,
        unmarked={"length": 192, "temperature": 1.0, "cache": "dual"},
        marked={
            "bigram": {"length": 192, "temperature": 0.5, "bias": 0.5, "cache": "dual"},
            "position": {"length": 192, "temperature": 0.6, "cache": "dual"},
        },
    ),
    # The narrator is most grammatical from the left. It is sure of its words, so that a short text takes a large bias:
    # with 1.5 at T = .8, 13 of 96 texts were missed. A key of rule "position" marks by the order, which has to be free.
    NARRATOR: Show(
        "Describe a walk through an old town in the morning.",
        chat=True,
        unmarked=_FROM_THE_LEFT,
        marked={
            "bigram": _FROM_THE_LEFT,
            "position": {"length": 240, "temperature": 0.5, "top_p": 0.9},
        },
    ),
}
_SEED = 1
# matching tokens of a text that carries the mark, and of any other text, where they mean nothing
_MATCHED, _BY_CHANCE = "green underline", "underline"


@command_errors
def demo(
    prompt: Annotated[str | None, typer.Option(help="Text to continue, or request.", show_default="the demo's")] = None,
    model: Annotated[
        str | None, typer.Option(help="narrator or storyteller.", show_default="that of the key; else narrator")
    ] = None,
    key_file: Annotated[Path | None, typer.Option("--key", help="Key file to use instead of a new one.")] = None,
) -> None:
    """Generate a text with the mark of a new key and one without; look for the mark in both, then in a cut text.

    The storyteller writes the marked text with decoding settings of its own, because a mark makes text more diverse.
    """
    loaded_key = None if key_file is None else WatermarkKey.load(key_file)
    if model is None:
        denoiser = _narrator_or_storyteller() if loaded_key is None else _load(loaded_key.spec.tokenizer)
    else:
        denoiser = _load(model)
    key, origin = (WatermarkKey.generate(denoiser), "new, secret") if loaded_key is None else (loaded_key, "secret")
    show, detector, console = SHOWS[denoiser.name], Detector(key), stdout(boxes=True)
    prompt = show.prompt if prompt is None else prompt
    console.print(Text.assemble("key     ", (key.fingerprint, "bold"), f"  ({origin}; this is its public fingerprint)"))
    console.print(Text.assemble("prompt  ", (prompt, "italic")))

    (unmarked, unmarked_how), (marked, marked_how) = _written(denoiser, prompt, key, show)
    panels = [
        _panel("without the mark", unmarked, detector, " This is expected of a text without a mark.", unmarked_how),
        _panel("with the mark", marked, detector, written=marked_how),
    ]
    sides = Table.grid(padding=(0, 1), expand=True)
    for _ in panels:
        sides.add_column(ratio=1)
    sides.add_row(*panels)
    console.print(sides)
    console.print(Text.assemble("In a text with the mark: ", (rule_test(key).shown_match, _MATCHED), "  other token"))
    console.print(_panel("with the mark, its first sentence cut off", without_first_sentence(marked), detector))
    console.print("Detection used the text, the key and the tokenizer: no model, no prompt, no GPU.")


def _written(denoiser: "LoadedModel", prompt: str, key: WatermarkKey, show: Show) -> list[tuple[str, str]]:
    """A text without the mark and one with it, and how each was written; at once if they have the same settings."""
    from dgmark.decode import generate

    of_marked = show.marked.get(key.spec.rule, show.unmarked)
    together = of_marked == show.unmarked
    calls: list[tuple[list[WatermarkKey | None], Settings]] = [([None], show.unmarked), ([key], of_marked)]
    if together:
        calls = [([None, key], of_marked)]
    written = list[tuple[str, str]]()
    with row_bar("texts") as bar:
        bar.show("writing", 0, 2, of_marked["length"])
        for keys, settings in calls:
            begin, prompts = time.perf_counter(), [prompt] * len(keys)
            made = generate(denoiser, prompts, key=keys, seed=_SEED, chat=show.chat, progress=bar.tokens, **settings)
            took = f"{time.perf_counter() - begin:.1f} s" + " for both texts" * together
            written += [(text.text, f"temperature {settings['temperature']}, {took}") for text in made]
    return written


def _narrator_or_storyteller() -> "LoadedModel":
    """The narrator; the storyteller where the narrator's base cannot be fetched."""
    try:
        return _load(NARRATOR)
    except ModelNotFound as error:
        stderr().print(f"The demo shows the storyteller, a smaller model: {error}")
        return _load(BUILTIN)


def _load(name: str) -> "LoadedModel":
    with needed_extra("generate", "the demo"):
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


def _panel(title: str, text: str, detector: Detector, remark: str = "", written: str = "") -> Panel:
    """A text with its matching tokens and its verdict.

    Args:
        title: what stands above it.
        text: the text.
        detector: looks for the mark.
        remark: what is said of a verdict that no mark was found.
        written: how it was written.
    """
    result = detector.detect(text)
    found = result.verdict == "watermarked"
    shown = Text(visible(text, lines=True))
    for token in detector.tokens(text, result):
        if token.matched:
            shown.stylize(_MATCHED if found else _BY_CHANCE, token.start, token.end)
    verdict = Text.assemble("\n\n", (heading(result), "bold green" if found else "bold"), f": {_explained(result)}")
    if not found:
        verdict.append(remark)
    if written:
        verdict.append(f"\n{written}", "dim")
    return Panel(shown + verdict, title=title, border_style="green" if found else "default")


def _explained(result: Detection) -> str:
    """The evidence of a verdict in a sentence."""
    what, number = matches(result)
    if result.verdict == "watermarked":
        seldom = rarity(result.p_value).removeprefix("1 in ")
        return f"{number} {what} match, which happens without the key at most once in {seldom} texts."
    if result.verdict == "uncertain":
        return verdict_sentence(result)
    return f"{number} {what} match, as many as chance makes match."
