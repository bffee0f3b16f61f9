"""`python -m dgmark_lab.training.export`: write a run's averaged weights as a folder to ship, with a model card.

The folder is read back and compared before it moves into place. An evaluation of other weights is refused.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.cli.console import command_errors, stdout
from dgmark.errors import CheckpointFormat, InputError, SettingsError
from dgmark.rows.outputs import atomic_folder
from dgmark_lab.training.config import TrainingConfig
from dgmark_lab.training.layout import DEFAULT_FILE_SIZE, save_model
from dgmark_lab.training.loop import STATE
from dgmark_lab.training.networks import Network, build_network, load_network, quiet_transformers, weights_fingerprint
from dgmark_lab.training.report import markdown
from dgmark_lab.training.state import State, load_state
from dgmark_lab.training.tokens import special_ids, training_tokenizer

LARGEST = 60_000_000  # bytes of a folder that ships inside a package
CARD = "MODEL_CARD.md"
_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

_CARD = """# {name}

{purpose}

- **What**: {parameters:,} parameters ({family} layout), weights in {dtype}; vocabulary {vocabulary:,}; context
  {context} tokens, prompt and response together.
- **Data**: {data} {documents:,} documents, {data_tokens:,} tokens; SHA-256 of the file `{data_hash}`. Data licence:
  {data_licence}.
- **Training**: {objective}; {step:,} of {steps:,} steps, {tokens:,} tokens ({epochs:.1f} times the data),
  {seconds:,.0f} s on {device}, from {start}. Weights are the exponential moving average.
- **Licence**: {licence}.

## Evaluation

{evaluation}
"""


def export(
    run: Path,
    out: Path,
    *,
    evaluation: Path | None = None,
    dtype: str = "bf16",
    file_size: str = DEFAULT_FILE_SIZE,
    allow_large: bool = False,
) -> int:
    """Write the folder, whole or not at all, and return its size in bytes.

    Args:
        run: folder of a training run.
        out: must not exist yet.
        evaluation: `evaluation.json` of these weights, for the model card.
        dtype: "bf16" or "fp32".
        file_size: largest size of a file of weights ("15MB"); more go into several files.
        allow_large: accept more than 60 MB.

    Raises:
        SettingsError: `out` exists, the dtype is unknown, or the folder is too large.
        InputError: the evaluation is invalid, or belongs to other weights.
        ResumeMismatch: the run's state is unreadable.
        CheckpointFormat: the written weights do not read back equal.
    """
    if out.exists():
        raise SettingsError(f"{out} exists: choose another --out, or move it away")
    if dtype not in _DTYPES:
        raise SettingsError(f"dtype {dtype!r} is not one of: {', '.join(_DTYPES)}")
    if not (run / STATE).is_file():
        raise SettingsError(f"{run} holds no {STATE}: give --run the folder of a training run")
    state = load_state(run / STATE)
    network = averaged_network(state)
    network.module.to(_DTYPES[dtype]).float()  # the values that will be on disk
    tokenizer = training_tokenizer(str(run / "tokens"))
    config = TrainingConfig.model_validate(state.config)
    figures = None if evaluation is None else _figures(evaluation, network)
    with atomic_folder(out) as beside:
        model = beside / "model"
        save_model(
            network,
            tokenizer,
            special_ids(tokenizer),
            model,
            context=config.rows.length,
            dtype=_DTYPES[dtype],
            file_size=file_size,
        )
        (model / CARD).write_text(card(state, config, network, tokenizer, dtype, figures), encoding="utf-8")
        size = sum(file.stat().st_size for file in model.iterdir())
        if size > LARGEST and not allow_large:
            raise SettingsError(f"the folder would have {size:,} bytes, more than {LARGEST:,}: give --allow-large")
        if weights_fingerprint(load_network(model).module) != weights_fingerprint(network.module):
            raise CheckpointFormat(
                f"{out}: the written weights do not read back equal, so nothing was kept; export again"
            )
        for file in list(model.iterdir()):
            file.rename(beside / file.name)
        model.rmdir()
    return size


def averaged_network(state: State) -> Network:
    """Build the network with a run's averaged weights."""
    network = build_network(state.family, state.network)
    averaged = {name: tensor for name, tensor in state.tensors["average"].items() if name.startswith("module.")}
    network.module.load_state_dict({name.removeprefix("module."): tensor for name, tensor in averaged.items()})
    return network


def card(
    state: State,
    config: TrainingConfig,
    network: Network,
    tokenizer: Tokenizer,
    dtype: str,
    figures: dict[str, Any] | None,
) -> str:
    """Render the model card from the settings' [card], the run's counts and the evaluation's tables."""
    objective = "masked diffusion, LLaDA's objective" if config.kind == "storyteller" else "next-token prediction"
    return _CARD.format(
        **config.card.model_dump(),
        parameters=sum(param.numel() for param in network.module.parameters()),
        family={"llada": "LLaDA's", "llama": "transformers' Llama"}[network.family],
        dtype=dtype,
        vocabulary=tokenizer.vocab_size,
        context=config.rows.length,
        documents=state.data["documents"],
        data_tokens=state.data["tokens"],
        data_hash=state.data["made_from"]["data"],
        objective=objective,
        step=state.step,
        steps=config.schedule.steps,
        tokens=state.tokens,
        epochs=state.tokens / state.data["tokens"],
        seconds=state.seconds,
        device=state.device,
        start=_start(state),
        evaluation=markdown(figures).strip() if figures else "Not evaluated.",
    )


def _start(state: State) -> str:
    if state.start is None:
        return "random weights"
    return f"the weights of `{state.start['name']}` (fingerprint `{state.start['weights'][:16]}`)"


def _figures(path: Path, network: Network) -> dict[str, Any]:
    try:
        figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        weights = figures["weights"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not an evaluation ({error!r}): make one with python -m dgmark_lab.training.evaluate"
        ) from error
    if weights != weights_fingerprint(network.module):
        raise InputError(f"{path} was measured on other weights: evaluate the run's model folder again")
    return figures


@command_errors
def main(
    run: Annotated[Path, typer.Option(help="Folder of a training run.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist.")],
    evaluation: Annotated[Path | None, typer.Option(help="evaluation.json of this run's model.")] = None,
    dtype: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    file_size: Annotated[
        str, typer.Option(help="Largest size of a file of weights, such as 15MB.")
    ] = DEFAULT_FILE_SIZE,
    allow_large: Annotated[bool, typer.Option(help="Write more than 60 MB.")] = False,
) -> None:
    """Export a run's averaged weights with a model card."""
    quiet_transformers()
    size = export(run, out, evaluation=evaluation, dtype=dtype, file_size=file_size, allow_large=allow_large)
    stdout().print(f"{out}: {size:,} bytes, read back and compared", markup=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
