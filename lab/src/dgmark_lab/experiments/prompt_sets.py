"""The prompts of a cell: the package's, those in the TOML file, or a file of the user's."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dgmark.errors import MissingExtra, NoTexts, SettingsError
from dgmark.files.outputs import atomic_write
from dgmark.rows.item import Row
from dgmark.rows.jsonl import read_good_rows
from dgmark_lab.experiments.spec import PROMPT_SETS, PromptSet

PACKAGE = Path(__file__).parent
BUILTIN_PROMPTS = PACKAGE / "prompts.jsonl"


def builtin_prompts() -> list[str]:
    """The prompts of the built-in set."""
    return [json.loads(line)["prompt"] for line in BUILTIN_PROMPTS.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Prompt:
    """One prompt of one text; text i of a set is decoded with the set's first seed + i."""

    prompt_id: str
    text: str
    seed: int


def load_prompts(name: str, prompts: PromptSet, count: int, files: Mapping[str, Path]) -> list[Prompt]:
    """Load the prompts of the first `count` texts of a set (fewer if it has fewer), from `files` by name of the set.

    Raises:
        NoTexts: the set needs a file that was not given, or the file has no usable row.
        InputError: a row is not a JSON object.
    """
    needed = -(-count // prompts.answers)
    if prompts.texts is not None:
        chosen = [(f"{name}-{i}", text) for i, text in enumerate(prompts.texts[:needed])]
    else:
        chosen = _from_file(name, prompts, needed, files)
    repeated = [one for one in chosen for _ in range(prompts.answers)][:count]
    return [Prompt(*one, prompts.first_seed + number) for number, one in enumerate(repeated)]


def _from_file(name: str, prompts: PromptSet, count: int, files: Mapping[str, Path]) -> list[tuple[str, str]]:
    path = PACKAGE / prompts.package_file if prompts.package_file else files.get(name)
    if path is None:
        raise NoTexts(
            f"the prompts {name!r} are {prompts.dataset}, which dgmark does not include: "
            + (f"fetch them with `dgmark-lab prompts {name}`, or give " if prompts.hub else "give ")
            + f"--prompts {name}=FILE, JSON Lines with the field {prompts.field!r}"
            + (f" (its first {prompts.characters} characters are the prompt)" if prompts.characters else "")
        )
    texts = ((str(row["id"]), _prompt_of(row, prompts)) for row in read_good_rows(str(path)))
    chosen = list(islice(((row_id, text) for row_id, text in texts if text is not None), count))
    if not chosen:
        raise NoTexts(
            f"{path} holds no row with the field {prompts.field!r}"
            + (f" of at least {prompts.characters} characters" if prompts.characters else "")
        )
    return chosen


def stored_prompts(runs: Path) -> dict[str, Path]:
    """The files of prompts in a runs folder, by prompt set."""
    return {path.stem: path for path in sorted((runs / "prompts").glob("*.jsonl"))}


def fetch_prompts(name: str, count: int, out: Path) -> None:
    """Write the first `count` rows of a prompt set on the hub that are long enough, as JSON Lines.

    Raises:
        SettingsError: no prompt set of this name is on the hub.
        MissingExtra: `datasets` is not installed.
        NoTexts: the hub cannot be reached, or the data set is not as expected.
    """
    prompts = PROMPT_SETS.get(name)
    if prompts is None or prompts.hub is None:
        on_hub = ", ".join(name for name, one in PROMPT_SETS.items() if one.hub)
        raise SettingsError(f"the prompts {name!r} are not on the hub: give one of {on_hub}")
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtra(f"prompts are fetched by datasets: install 'dgmark-lab[bench]' ({error})") from None
    dataset, configuration, split = prompts.hub
    try:
        rows = load_dataset(dataset, configuration, split=split, streaming=True)
        fit = (row[prompts.field] for row in rows if _prompt_of(row, prompts) is not None)
        texts = list(islice(fit, count))
    except Exception as error:  # whatever datasets raises where the hub cannot be reached
        raise NoTexts(
            f"{dataset} cannot be read from the hub ({type(error).__name__}: {error}): where there is a network, run "
            f"`dgmark-lab prompts {name} --out {name}.jsonl`, copy the file here and give --prompts {name}={name}.jsonl"
        ) from None
    if not texts:
        raise NoTexts(f"{dataset} holds no row with the field {prompts.field!r} that is long enough")
    out.parent.mkdir(parents=True, exist_ok=True)
    chosen = [{"id": f"{name}-{number}", prompts.field: text} for number, text in enumerate(texts)]
    atomic_write(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen))


def _prompt_of(row: Row, prompts: PromptSet) -> str | None:
    text = row.get(prompts.field)
    if not isinstance(text, str) or not text.strip():
        return None
    if prompts.characters is None:
        return text
    return text[: prompts.characters] if len(text) >= prompts.characters else None


def named_files(arguments: list[str]) -> dict[str, Path]:
    """Parse files by prompt set, from "SET=FILE".

    Raises:
        SettingsError: an argument does not name a set and an existing file.
    """
    files: dict[str, Path] = {}
    for item in arguments:
        name, _, path = item.partition("=")
        if not os.path.isfile(path):
            raise SettingsError(f"--prompts {item} names no file: give SET=FILE, a file of prompts in JSON Lines")
        files[name] = Path(path)
    return files
