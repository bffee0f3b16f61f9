"""Texts written by the base itself, from which an adapted model can learn quickly.

They have the base's own style, so that adapters only need to learn to fill in masked tokens; and sampled below
temperature 1, they are easier to predict than texts by people.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

from dgmark.checkpoint.families import BLOCK_LLAMA
from dgmark.checkpoint.tokenizer import read_tokenizer
from dgmark.cli.console import stderr
from dgmark.errors import InputError, NoTexts
from dgmark.rows.outputs import atomic_write
from dgmark_lab.evaluate.repetition import repeated_ngrams
from dgmark_lab.training.narrator.config import OwnTexts
from dgmark_lab.training.narrator.rows import Passage
from dgmark_lab.training.narrator.sampler import BatchSampler

REQUESTS = Path(__file__).parent / "requests.toml"
TURN = str(BLOCK_LLAMA.chat)


def requests(rng: np.random.Generator) -> Iterator[str]:
    """Yield requests without end: a form, filled with one phrase from each list that it names."""
    lists: dict[str, list[str]] = tomllib.loads(REQUESTS.read_text(encoding="utf-8"))
    forms = lists.pop("forms")
    while True:
        chosen = {name: str(rng.choice(phrases)) for name, phrases in lists.items()}
        who = chosen["who"]
        yield str(rng.choice(forms)).format(**chosen, who_capital=who[0].upper() + who[1:])


def read_own_texts(path: Path, end_ids: frozenset[int]) -> list[Passage]:
    """Read the texts of a file, each after its request.

    Args:
        path: JSON Lines with token ids in "prompt" and "text".
        end_ids: end tokens; a complete text ends with one of them.

    Raises:
        NoTexts: the file does not exist, or is empty.
        InputError: a row is not such a text.
    """
    try:
        texts = [_passage(json.loads(line), end_ids) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise NoTexts(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} holds a row that is not a text of the base: {error!r}") from error
    if not texts:
        raise NoTexts(f"{path} holds no text")
    return texts


def _passage(row: dict[str, Any], end_ids: frozenset[int]) -> Passage:
    prompt, text = row["prompt"], row["text"]
    ended = text[-1] in end_ids
    return Passage(np.array(prompt + text[: len(text) - ended], np.uint16), len(prompt), ended)


def write_own_texts(base: Path, path: Path, settings: OwnTexts) -> None:
    """Let the base answer requests for stories; resume an unfinished file.

    Args:
        base: folder of the base.
        path: JSON Lines: "batch", token ids of "prompt" and "text", and the text as "plain" characters.
        settings: number of texts, their length, and how to sample them.

    Raises:
        InputError: the file holds other rows.
    """
    done = _batches(path)
    batches = -(-settings.texts // settings.batch)
    if done >= batches:
        return
    tokenizer = read_tokenizer(base, base.name)
    network = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    sampler = BatchSampler(network, frozenset(tokenizer.end_ids), settings.sampling)
    for number in range(done, batches):
        rng = np.random.default_rng((settings.seed, number))
        endless = requests(rng)
        prompts = tokenizer.encode_batch([TURN.format(prompt=next(endless)) for _ in range(settings.batch)])
        answers = sampler.sample(prompts, settings.length, torch.Generator().manual_seed(int(rng.integers(2**62))))
        kept = [
            pair for pair in zip(prompts, answers, strict=True) if repeated_ngrams(pair[1]) <= settings.most_repeated
        ]
        rows = [
            {"batch": number, "prompt": prompt, "text": text, "plain": tokenizer.decode(text)} for prompt, text in kept
        ]
        with open(path, "a", encoding="utf-8") as file:  # one write, so that an interrupted file ends in a torn line
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        stderr().print(
            f"{path}: batch {number + 1} of {batches}, {len(kept)} of {settings.batch} texts kept", markup=False
        )


def _batches(path: Path) -> int:
    """Count the batches in a file; a torn last one is removed."""
    if not path.exists():
        return 0
    try:
        whole, _, torn = path.read_text(encoding="utf-8").rpartition("\n")
        rows = [json.loads(line) for line in whole.splitlines()]
        count = 1 + max((int(row["batch"]) for row in rows), default=-1)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds a row that is not a text of the base: {error!r}; delete it") from error
    if torn:
        count -= 1
        kept = [row for row in rows if row["batch"] < count]
        atomic_write(path, "".join(json.dumps(row) + "\n" for row in kept))
    return count
