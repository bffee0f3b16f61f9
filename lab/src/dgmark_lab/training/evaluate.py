"""`python -m dgmark_lab.training.evaluate`: a model's quality: held-out bound, judged samples, repetition, lengths.

Writes `evaluation.json`, `evaluation.md`, `samples.html` and the samples into a folder. Existing samples are reused.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import torch
import typer

from dgmark.checkpoint.folder import find_checkpoint
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.errors import InputError, SettingsError
from dgmark.models.denoiser import CacheMode
from dgmark.models.load import load_model
from dgmark.rows.jsonl import Row
from dgmark.rows.outputs import atomic_write
from dgmark_lab.evaluate import BUILTIN_JUDGE, Judge, load_judge, perplexity
from dgmark_lab.evaluate.repetition import distinct_ngrams, periodic, repeated_ngrams
from dgmark_lab.training.corpus import Document, file_hash, read_documents
from dgmark_lab.training.files import write_json
from dgmark_lab.training.nelbo import Bound, cross_entropy, held_out_rows, nelbo
from dgmark_lab.training.networks import load_network, quiet_transformers, weights_fingerprint
from dgmark_lab.training.report import markdown, page
from dgmark_lab.training.samples import Plan, cells, generate_cell, held_out_prompts
from dgmark_lab.training.tokens import special_ids, training_tokenizer

SCHEMA = 1

# alternating groups reward even periods; odd ones are the control
PERIODS = (1, 2, 3, 4)


def bound_of(
    folder: str, documents: list[Document], *, length: int, rows: int, repeats: int, device: torch.device
) -> Bound:
    """Compute the held-out bound of a model folder (the cross entropy, for an autoregressive model).

    Raises:
        ModelError: the model does not exist.
        InputError: no document is as long as a row.
    """
    network = load_network(folder)
    network.module.to(device).train(False)
    tokenizer = training_tokenizer(folder)
    held_out = held_out_rows(documents, tokenizer, length, rows)
    mask = special_ids(tokenizer).mask
    if network.family == "llama" or mask is None:
        return cross_entropy(network, held_out)
    return nelbo(network, held_out, mask, repeats=repeats)


def weights_of(name_or_path: str) -> str:
    """Compute the fingerprint of a model's weights, for a diffusion model or a judge.

    Raises:
        ModelError: the model does not exist.
    """
    family = find_checkpoint(name_or_path).config.get("model_type")
    return weights_fingerprint(
        load_network(name_or_path).module if family == "llama" else load_model(name_or_path, dtype="fp32").network
    )


def figures_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Compute lengths and repetition of one cell's texts, from their token ids; shares are means over texts."""
    ids = [row["token_ids"] for row in rows]
    lengths = [len(one) for one in ids]
    shares = {period: [periodic(one, period) for one in ids] for period in PERIODS}
    quartiles = np.quantile(lengths, [0.25, 0.5, 0.75]).tolist()
    return {
        "texts": len(rows),
        "ended": fmean(row["ended"] for row in rows),
        "lengths": {
            "min": min(lengths),
            **dict(zip(("lower_quartile", "median", "upper_quartile"), quartiles, strict=True)),
            "max": max(lengths),
        },
        "repeated_4_grams": fmean(map(repeated_ngrams, ids)),
        **{f"distinct_{n}": fmean(distinct_ngrams(one, n) for one in ids) for n in (1, 2, 3, 4)},
        "echoes": {str(period): fmean(one.echoes for one in each) for period, each in shares.items()},
        "in_runs": {str(period): fmean(one.in_runs for one in each) for period, each in shares.items()},
    }


def sample_cells(
    folder: str, documents: list[Document], plan: Plan, out: Path, device: str | None
) -> dict[str, list[Row]]:
    """Generate the rows of the four cells.

    Raises:
        ModelError: the folder is not a masked diffusion model that dgmark loads.
    """
    model = load_model(folder, device=device)
    # the name includes the weights, so that rows of an earlier state of the folder are not reused
    name = f"{Path(folder).name} {weights_fingerprint(model.network)[:12]}"
    model = replace(model, name=name)
    prompts = held_out_prompts(documents, model.tokenizer, plan.texts)
    made = {}
    for cell in cells():
        made[cell] = generate_cell(model, prompts, cell, plan, out / f"{cell}.jsonl")
        stderr().print(f"{cell}: {len(made[cell])} texts", markup=False)
    return made


def judge_cells(judge: Judge, made: dict[str, list[Row]]) -> dict[str, dict[str, Any]]:
    """Compute the perplexity of each cell's texts after their prompts; fewer than five texts have no interval.

    Raises:
        InputError: a cell's texts are all empty.
    """
    figures = {}
    for cell, rows in made.items():
        result = perplexity(judge, [row["text"] for row in rows], [row["prompt"] for row in rows])
        corpus = result.corpus
        figures[cell] = {
            "perplexity": corpus.value,
            "low": corpus.low,
            "high": corpus.high,
            "texts": len(result.texts),
            "tokens": result.tokens,
        }
    return figures


@command_errors
def main(
    model: Annotated[str, typer.Option(help="Built-in model name, or a model folder.")],
    data: Annotated[Path, typer.Option(help="Held-out documents (.jsonl, .xz).")],
    out: Annotated[Path, typer.Option(help="Folder of the results.")],
    judge: Annotated[
        str | None,
        typer.Option(help="Autoregressive model: builtin, or a folder; without it, no perplexity is measured."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only held-out documents whose id begins with this.", show_default="all")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FOLDER: another model to measure the bound of, on the same documents."),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound/--no-bound", help="Measure the bound on whole rows; not for models that decode block by block."
        ),
    ] = True,
    rows: Annotated[int, typer.Option(min=2, help="Held-out rows.")] = 256,
    length: Annotated[int, typer.Option(min=8, help="Tokens of a held-out row.")] = 320,
    repeats: Annotated[int, typer.Option(min=2, help="Independent draws of times and masks.")] = 4,
    texts: Annotated[int, typer.Option(min=0, help="Samples of each cell; 0 measures only the bound.")] = 20,
    tokens: Annotated[int, typer.Option(min=32, help="Tokens of a sample.")] = 256,
    block_length: Annotated[int, typer.Option(min=1, help="Block length of the samples.")] = 32,
    cache: Annotated[CacheMode, typer.Option(help="Cache mode for decoding the samples.")] = "none",
    device: Annotated[str | None, typer.Option(help="A torch device; by default the GPU if there is one.")] = None,
) -> None:
    """Evaluate a model on held-out documents."""
    quiet_transformers()
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    judged = load_judge(judge, device=device, dtype="fp32") if judge else None
    documents = [one for one in read_documents(data) if one.doc_id.startswith(only or "")]
    if not documents:
        raise InputError(f"{data} holds no document whose id begins with {only!r}")
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "weights": weights_of(model),
        "judge_weights": weights_fingerprint(judged.network) if judged else None,
        "heldout_sha256": file_hash(data),
        "heldout_only": only,
    }
    folders = {"this model": model, **_parse_models(against or [])}
    if judge and judge != BUILTIN_JUDGE:
        folders["the judge"] = judge
    figures["bounds"] = {
        name: bound_of(folder, documents, length=length, rows=rows, repeats=repeats, device=target).to_dict()
        for name, folder in (folders.items() if bound else ())
    }
    if texts:
        made = sample_cells(
            model, documents, Plan(texts=texts, length=tokens, block_length=block_length, cache=cache), out, device
        )
        scores = judge_cells(judged, made) if judged else {}
        figures["cells"] = {cell: {**figures_of(made[cell]), "judge": scores.get(cell)} for cell in made}
        atomic_write(out / "samples.html", page(f"Samples of {Path(model).name}", made))
    write_json(out / "evaluation.json", figures)
    atomic_write(out / "evaluation.md", markdown(figures))
    stdout().print(markdown(figures), markup=False, soft_wrap=True, end="")


def _parse_models(models: Sequence[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in models]
    wrong = next((one for one, (name, _, folder) in zip(models, pairs, strict=True) if not (name and folder)), None)
    if wrong is not None:
        raise SettingsError(f"--against {wrong!r} is invalid: give NAME=FOLDER, with the model's name in the report")
    return {name: folder for name, _, folder in pairs}


if __name__ == "__main__":
    typer.run(main)
