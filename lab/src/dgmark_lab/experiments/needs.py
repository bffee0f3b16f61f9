"""What an experiment needs to be run, and what it costs, before anything is loaded."""

from collections.abc import Iterator
from typing import Any

from dgmark.decode.config import DecodeConfig
from dgmark_lab.experiments.spec import Cell, Experiment, SetupName

_ATTACKS = {"dipper": "the paraphraser DIPPER", "paraphrase": "the paraphraser"}


def most_tokens(experiment: Experiment, setup: SetupName) -> int:
    """The largest number of tokens that the experiment generates; in benchmarks each task sets it, so it is 0 there."""
    if experiment.view == "benchmark":
        return 0
    texts = [_texts(experiment, cell, setup) * _length(experiment, cell, setup) for cell in experiment.cells_of(setup)]
    return sum(texts)


def _texts(experiment: Experiment, cell: Cell, setup: SetupName) -> int:
    _, prompts = experiment.prompt_set(cell, setup)
    most = experiment.setup(setup).texts
    return most if prompts.texts is None else min(most, len(prompts.texts))


def _length(experiment: Experiment, cell: Cell, setup: SetupName) -> int:
    settings: dict[str, Any] = {**experiment.setup(setup).decoding, **cell.decoding}
    if setup == "builtin":
        settings |= cell.builtin_decoding
    return int(settings.get("length", DecodeConfig().length))


def needs(experiment: Experiment, setup: SetupName) -> list[str]:
    """What dgmark does not bring along: models, prompts, judges, packages; empty if nothing."""
    return list(dict.fromkeys(_needs(experiment, setup)))


def _needs(experiment: Experiment, setup: SetupName) -> Iterator[str]:
    cells, chosen = experiment.cells_of(setup), experiment.setup(setup)
    if setup == "paper":
        for cell in cells:
            yield cell.model or chosen.model
        if "perplexity" in experiment.measures and chosen.judge:
            yield f"{chosen.judge} as the judge (or another with --judge)"
    for cell in cells:
        name, prompts = experiment.prompt_set(cell, setup)
        if prompts.texts is None and not prompts.builtin:
            yield f"--prompts {name}=FILE ({prompts.dataset})"
    if "judge" in experiment.measures:
        yield "a rating model at an endpoint (--rater)"
    for attack in experiment.attacks_of(setup):
        if attack.name in _ATTACKS:
            yield f"{_ATTACKS[attack.name]} {attack.options.get('model', '')} (extra attack)".replace("  ", " ")
    if experiment.view == "benchmark":
        yield f"the harness (extra bench) and the data of {', '.join(experiment.tasks)}"
