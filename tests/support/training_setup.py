"""A small world to train in: tales of few words, settings of a few thousand parameters, a corpus, a fresh trainer."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgmark_lab.training.config import NarratorConfig, TrainingConfig
from dgmark_lab.training.corpus import Corpus, prepare_corpus
from dgmark_lab.training.trainer import Trainer
from support.cases import data

CPU = torch.device("cpu")
NAMES = ("The fox", "The king", "A girl", "The old man", "My sister", "A bear")
DEEDS = ("went to the wood", "ate the bread", "saw a ship", "sang all night", "found a golden key", "slept by the fire")

Content = dict[str, Any]


def tale(rng: np.random.Generator, paragraphs: int) -> list[str]:
    """Paragraphs of a few sentences over few words."""
    return [
        " ".join(f"{rng.choice(NAMES)} {rng.choice(DEEDS)}." for _ in range(int(rng.integers(2, 6))))
        for _ in range(paragraphs)
    ]


def write_tales(path: Path, documents: int = 40, seed: int = 0) -> Path:
    """A JSON Lines file of tales, compressed where the name says so."""
    rng = np.random.default_rng(seed)
    rows = [{"id": f"tale-{n}", "paragraphs": tale(rng, int(rng.integers(1, 9)))} for n in range(documents)]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(lzma.compress(content) if path.suffix == ".xz" else content)
    return path


def settings(kind: str = "storyteller", **sections: Any) -> Content:
    """A run of seconds as parsed TOML; `sections` replace values, section by section."""
    content: Content = {"kind": kind, **data(__file__, "run")}
    if kind == "storyteller":
        content["masking"] = {"prefix_min": 4, "prefix_max": 12}
    for name, values in sections.items():
        content[name] = {**content.get(name, {}), **values} if isinstance(values, dict) else values
    return content


def tiny(kind: str = "storyteller", **sections: Any) -> TrainingConfig:
    """The settings of a run of seconds, checked."""
    return TrainingConfig.model_validate(settings(kind, **sections))


def tiny_corpus(folder: Path) -> Corpus:
    """Forty tales."""
    return prepare_corpus(write_tales(folder / "tales.jsonl"), folder / "tokens")


def trainer(config: TrainingConfig, corpus: Corpus, out: Path, **more: Any) -> Trainer:
    """A trainer on the CPU."""
    return Trainer(config, corpus, out, CPU, **more)


# --- a narrator of a few thousand parameters, trained for a few steps ---

NARRATOR_SETTINGS: dict[str, Any] = data(__file__, "narrator")


def narrator_settings(**changes: Any) -> NarratorConfig:
    """The settings, checked; `changes` replace whole sections."""
    return NarratorConfig.model_validate(NARRATOR_SETTINGS | changes)
