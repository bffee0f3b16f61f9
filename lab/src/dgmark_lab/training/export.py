"""A run's averaged weights as a folder to ship, with a model card; an evaluation of other weights is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

from dgmark.errors import InputError, SettingsError
from dgmark.rows.outputs import atomic_folder
from dgmark_lab.training.config import TrainingConfig
from dgmark_lab.training.evaluate import THIS, markdown
from dgmark_lab.training.networks import Network, load_network, weights_fingerprint
from dgmark_lab.training.run import STATE, State, load_state
from dgmark_lab.training.trainer import MODEL

CARD = "MODEL_CARD.md"

_CARD = """# {name}

{purpose}

- **What**: {parameters:,} parameters ({family} layout), weights in bf16; vocabulary {vocabulary:,}; context
  {context} tokens, prompt and response together.
- **Data**: {data} {documents:,} documents, {data_tokens:,} tokens; SHA-256 of the file `{data_hash}`. Data licence:
  {data_licence}.
- **Training**: {objective}; {step:,} of {steps:,} steps, {tokens:,} tokens ({epochs:.1f} times the data),
  {seconds:,.0f} s on {device}, from {start}. Weights are the exponential moving average.
- **Licence**: {licence}.

## Evaluation

{evaluation}
"""


def check_run(run: Path, out: Path) -> None:
    """Refuse to export something else than a run, or to a folder that exists.

    Raises:
        SettingsError: `out` exists, or `run` holds no state file.
    """
    if out.exists():
        raise SettingsError(f"{out} exists: choose another --out, or move it away")
    if not (run / STATE).is_file():
        raise SettingsError(f"{run} holds no {STATE}: give --run the folder of a training run")


def export(run: Path, out: Path, evaluation: Path | None = None) -> int:
    """Write the folder, whole or not at all, and return its size in bytes.

    Args:
        run: folder of a run of the storyteller or the judge.
        out: must not exist yet.
        evaluation: `evaluation.json` of these weights, for the model card.

    Raises:
        SettingsError: `out` exists, or `run` is not a run.
        InputError: the evaluation is invalid, or belongs to other weights.
        ResumeMismatch: the run's state is unreadable.
    """
    check_run(run, out)
    state, network = load_state(run / STATE), load_network(run / MODEL)
    figures = None if evaluation is None else _figures(evaluation, network)
    with atomic_folder(out) as beside:
        shutil.copytree(run / MODEL, beside, dirs_exist_ok=True)
        (beside / CARD).write_text(card(state, network, figures), encoding="utf-8")
        return sum(file.stat().st_size for file in beside.iterdir())


def card(state: State, network: Network, figures: dict[str, Any] | None) -> str:
    """Render the model card from the settings' [card], the run's counts and the evaluation's table."""
    config, data = TrainingConfig.model_validate(state.config), state.facts["data"]
    objective = "masked diffusion, LLaDA's objective" if config.kind == "storyteller" else "next-token prediction"
    start = state.facts["start"]
    return _CARD.format(
        **config.card.model_dump(),
        parameters=sum(param.numel() for param in network.module.parameters()),
        family={"llada": "LLaDA's", "llama": "transformers' Llama"}[network.family],
        vocabulary=network.module.config.vocab_size,
        context=config.rows.length,
        documents=data["documents"],
        data_tokens=data["tokens"],
        data_hash=data["made_from"]["data"],
        objective=objective,
        step=state.step,
        steps=config.schedule.steps,
        tokens=state.tokens,
        epochs=state.tokens / data["tokens"],
        seconds=state.seconds,
        device=state.facts["device"],
        start=f"the weights of `{start['name']}` (fingerprint `{start['weights'][:16]}`)"
        if start
        else "random weights",
        evaluation=markdown(figures).strip() if figures else "Not evaluated.",
    )


def _figures(path: Path, network: Network) -> dict[str, Any]:
    try:
        figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        weights = figures["bounds"][THIS]["weights"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not an evaluation ({error!r}): make one with `dgmark-lab train evaluate`"
        ) from error
    if weights != weights_fingerprint(network.module):
        raise InputError(f"{path} was measured on other weights: evaluate the run's model folder again")
    return figures
