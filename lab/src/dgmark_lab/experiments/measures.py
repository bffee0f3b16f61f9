"""Rows about stored texts and decodes, each made once: attacked texts, perplexities, ratings, decoding times."""

import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dgmark.checkpoint.folder import BUILTIN, builtin_folder, find_checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.decode.generation import generations
from dgmark.models.denoiser import traits_of
from dgmark.rows.jsonl import Row
from dgmark_lab import attacks
from dgmark_lab.endpoint import Endpoint, EndpointError
from dgmark_lab.evaluate.judge import BUILTIN_JUDGE, Judge
from dgmark_lab.evaluate.likelihood import score_texts
from dgmark_lab.evaluate.ratings import PROMPT, Rating, rate_texts
from dgmark_lab.experiments.cells import attack_hash, attacked_id
from dgmark_lab.experiments.plan import PlannedCell, Subject
from dgmark_lab.experiments.prompt_sets import Prompt
from dgmark_lab.experiments.spec import Attack
from dgmark_lab.experiments.store import ROW_VERSION, Store, checkpoint_hash, digest


def make_attacked(store: Store, attack: Attack, value: float, texts: Mapping[str, Row], model: Any) -> None:
    """Attack the texts that have no attacked version yet, each with its own random generator.

    Args:
        store: the store of the rows.
        attack: the attack; it uses the texts' own tokenizer, and their model if it needs one.
        value: its strength, not 0.
        texts: stored texts by id.
        model: their model.

    Raises:
        SettingsError: no attack or option has this name.
        MissingExtra: the attack needs a package or data that is not installed.
    """
    name = attack_hash(attack, value)
    loaded: list[attacks.Attack] = []

    def make(batch: list[tuple[str, Row]]) -> list[Row]:
        if not loaded:
            loaded.append(_load_attack(attack, value, model.tokenizer, model))
        return [
            {"of": row["id"], "text": loaded[0](row["text"], np.random.default_rng(int(row_id, 16)))}
            for row_id, row in batch
        ]

    ids = {attacked_id(name, text_id): row for text_id, row in texts.items()}
    same = {"attack": name, "attack_name": attack.name, "attack_options": attack.options_at(value)}
    store.complete("attacked", name, same, {row_id: (row_id, row) for row_id, row in ids.items()}, make, batch=8)


def _load_attack(attack: Attack, value: float, tokenizer: Tokenizer, model: object) -> attacks.Attack:
    options = attack.options_at(value)
    defaults = attacks.defaults_of(attack.name) if attack.name in attacks.ATTACKS else {}
    own = {name: thing for name, thing in (("tokenizer", tokenizer), ("model", model)) if defaults.get(name) == BUILTIN}
    if isinstance(defaults.get(attack.option), int):
        options[attack.option] = int(value)
    return attacks.attack(attack.name, **{**own, **options})


def judge_identity(judge: Judge) -> dict[str, Any]:
    """Return name, weights and number format of a judge, and their hash, which names the file of its scores."""
    folder = builtin_folder("judge") if judge.name == BUILTIN_JUDGE else find_checkpoint(judge.name).folder
    known = {"weights": checkpoint_hash(folder), "dtype": judge.dtype}
    return {"name": judge.name, **known, "hash": digest([known, ROW_VERSION])}


def make_perplexities(store: Store, judge: Judge, identity: dict[str, Any], rows: Sequence[Row]) -> None:
    """Compute the perplexity, after its prompt, of each text that has none yet."""

    def make(batch: list[Row]) -> list[Row]:
        scored = score_texts(judge, [row["text"] for row in batch], [row["prompt"] for row in batch])
        return [{"nats": one.nats, "tokens": one.tokens} for one in scored]

    same = {"judge": identity["hash"], "judge_name": identity["name"]}
    store.complete("perplexity", identity["hash"], same, {row["id"]: row for row in rows}, make)


def rater_hash(endpoint: Endpoint) -> str:
    """Hash everything that determines a rater's question; the hash names the file of its ratings."""
    return digest([endpoint.model, endpoint.base_url, endpoint.temperature, PROMPT, ROW_VERSION])


def make_ratings(store: Store, endpoint: Endpoint, rows: Sequence[Row]) -> int:
    """Have the texts without a rating rated, and return how many texts have one now. A next run asks about the rest.

    Raises:
        EndpointError: no text of a batch could be rated.
        MissingExtra: the openai package is not installed.
    """

    def make(batch: list[Row]) -> list[Row | None]:
        rated = rate_texts([row["text"] for row in batch], endpoint)
        if not any(isinstance(one, Rating) for one in rated):
            raise EndpointError(str(rated[0]))
        return [{"scores": one.model_dump()} if isinstance(one, Rating) else None for one in rated]

    name = rater_hash(endpoint)
    same = {"rater": name, "model": endpoint.model}
    return store.complete("judged", name, same, {row["id"]: row for row in rows}, make)


def time_cells(store: Store, planned: Sequence[PlannedCell], subject: Subject, limit: int | None) -> str:
    """Time the first `limit` prompts of all cells, unless their times are stored; return the name of the file.

    Every prompt is decoded by each cell in turn, alone in its batch.
    """
    device = traits_of(subject.model).device
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    machine = {"device": f"{device.type}: {chip}", "threads": torch.get_num_threads()}
    warm: set[str] = set()

    def make(batch: list[tuple[PlannedCell, Prompt]]) -> list[Row]:
        ((cell, prompt),) = batch
        if cell.hash not in warm:  # the first forward of a shape also allocates
            _time_decode(cell, subject, prompt)
            warm.add(cell.hash)
        seconds, tokens = _time_decode(cell, subject, prompt)
        return [{"recipe": cell.hash, "seconds": seconds, "tokens": tokens}]

    count = min(len(cell.prompts) for cell in planned)
    todo = {
        cell.row_ids[place]: (cell, cell.prompts[place])
        for place in range(count if limit is None else min(limit, count))
        for cell in planned
    }
    name = digest(machine)
    store.complete("timings", name, {"machine": machine}, todo, make, batch=1)
    return name


def _time_decode(cell: PlannedCell, subject: Subject, prompt: Prompt) -> tuple[float, int]:
    start = time.perf_counter()
    (text,) = generations(cell.prepare(subject, [prompt], pad=False), [0])
    return time.perf_counter() - start, len({*text.trace.position})
