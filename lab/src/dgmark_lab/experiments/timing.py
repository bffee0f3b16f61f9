"""Decoding times of cells. Every prompt is decoded by each cell in turn, alone in its batch."""

import platform
import time
from typing import Any

import torch

from dgmark.decode.generation import generations
from dgmark.models.denoiser import traits_of
from dgmark.rows.jsonl import Row
from dgmark_lab.experiments.plan import PlannedCell, Subject, prepare
from dgmark_lab.experiments.prompt_sets import Prompt
from dgmark_lab.experiments.recipe import ROW_VERSION, digest, versions
from dgmark_lab.experiments.store import Store


def machine_of(subject: Subject) -> dict[str, Any]:
    """Return what a time depends on in addition to the recipe: device and threads."""
    device = traits_of(subject.model).device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": f"{device.type}: {name}", "threads": torch.get_num_threads()}


def time_cells(store: Store, planned: list[PlannedCell], subject: Subject, limit: int | None) -> str:
    """Time the first `limit` prompts of all cells, unless their times are stored; return the name of the file."""
    machine = machine_of(subject)
    name = digest(machine)
    warm: set[str] = set()
    with store.open("timings", name, {"machine": machine}) as file:
        for place in range(min(len(cell.prompts) for cell in planned) if limit is None else limit):
            for cell in planned:
                if place >= len(cell.prompts):
                    continue
                row_id = cell.row_ids[place]
                if row_id in file.done:
                    continue
                if cell.recipe.hash not in warm:  # the first forward of a shape also allocates
                    _time_decode(cell, subject, cell.prompts[place])
                    warm.add(cell.recipe.hash)
                seconds, tokens = _time_decode(cell, subject, cell.prompts[place])
                file.append([_row(row_id, cell, machine, seconds, tokens)])
    return name


def _time_decode(cell: PlannedCell, subject: Subject, prompt: Prompt) -> tuple[float, int]:
    start = time.perf_counter()
    (text,) = generations(prepare(cell, subject, [prompt], pad=False), [0])
    return time.perf_counter() - start, len(text.trace.position)


def _row(row_id: str, cell: PlannedCell, machine: dict[str, Any], seconds: float, tokens: int) -> Row:
    return {
        "id": row_id,
        "recipe": cell.recipe.hash,
        "seconds": seconds,
        "tokens": tokens,
        "machine": machine,
        "versions": versions(),
        "schema": ROW_VERSION,
    }
