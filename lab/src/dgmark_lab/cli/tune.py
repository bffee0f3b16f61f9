"""`dgmark-lab tune`: find the decoding settings under which the mark costs least."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dgmark.checkpoint.folder import BUILTIN, NARRATOR, model_option
from dgmark.cli import options as opt
from dgmark.cli.bar import row_bar
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.option_groups import option_groups
from dgmark.decode.config import Settings
from dgmark.decode.settings_file import TunedSettings, read_settings_file, write_settings_file
from dgmark.errors import InputError, SettingsError
from dgmark.rows.jsonl import BadRow, read_good_rows
from dgmark.rows.outputs import atomic_write
from dgmark.rows.texts import prompt_of
from dgmark.watermark.bigrams import MAX_DISTANCE
from dgmark.watermark.spec import Rule

if TYPE_CHECKING:
    from dgmark.decode.prompts import Prompt
    from dgmark_lab.halving import Standing
    from dgmark_lab.trials import Candidate, Trials

TUNE_SCHEMA = 1
MIN_TEXTS = 4

# what the search itself decides, or what follows from --tokens
_SEARCHED = ("length", "steps", "schedule", "alpha", "min_relative_reward", "lookahead", "lookahead_proposals")


@command_errors
@option_groups
def tune(
    prompts: Annotated[Path, typer.Option(help='JSON Lines file of rows with "id" and "prompt", like those to mark.')],
    *,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Judge of perplexity: builtin, a folder, or a hub id.",
            show_default="builtin, for a built-in model",
        ),
    ] = None,
    fpr: Annotated[float, typer.Option(help="False-positive rate at which a text counts as found.")] = 1e-4,
    tokens: Annotated[int, typer.Option(min=16, help="Tokens from which the mark is to be found.")] = 200,
    texts: Annotated[int, typer.Option(min=MIN_TEXTS, help="Texts of each of the last candidates, one a prompt.")] = 32,
    rule: Annotated[Rule, typer.Option(help="Rule of the key.")] = "bigram",
    alpha: Annotated[
        list[float] | None,
        typer.Option(help="Bigram: alpha to try; may be repeated.", min=0.01, max=1, show_default="1 and 0.5"),
    ] = None,
    farthest: Annotated[
        list[int] | None,
        typer.Option(
            help="Bigram: largest distance of a pair to try; may be repeated.",
            min=1,
            max=MAX_DISTANCE,
            show_default="1, 4 and 8",
        ),
    ] = None,
    min_relative_reward: Annotated[
        list[float] | None,
        typer.Option(help="Position: smallest relative reward to try; may be repeated.", show_default="0 and 0.05"),
    ] = None,
    lookahead: Annotated[
        list[int] | None, typer.Option(help="Position: lookahead to try; may be repeated.", show_default="1 and 3")
    ] = None,
    loading: opt.ModelOptions,
    settings: Annotated[Settings, opt.decoding_options(without=_SEARCHED, shown=())],
    chat: Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")] = False,
    batch_size: opt.BatchSize = 8,
    pad: opt.Pad = None,
    out: Annotated[Path, typer.Option(help="Settings file to write, for `generate --settings`.")] = Path(
        "settings.json"
    ),
    rows: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines file of the trial texts; an interrupted search goes on from it.",
            show_default="--out, with the suffix .trials.jsonl",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Save a picture of the last candidates (PNG).", show_default=False),
    ] = None,
    as_json: opt.OneObject = False,
) -> None:
    """Find the settings under which marked text is as good as unmarked text, with the most evidence.

    Marked text with the settings that are found is at least as diverse (distinct-2) as your unmarked text, and at most
    1.05 times as perplexing as the best unmarked text that is as diverse: with your settings, at other temperatures,
    with another top-p, or with fixed noise. If no settings are that good, the command says how far the best ones are
    off. The same temperatures and top-p are tried with the mark.

    The decoding options of `dgmark generate` are taken too, but for those of the search: they are those of your
    unmarked text.
    """
    if out.exists():
        read_settings_file(out)  # so that no other file is replaced
    read = _prompts(prompts, texts)
    judge_name = _judge_of(judge, loading)
    from dgmark.models.load import load_model
    from dgmark_lab.evaluate.judge import load_judge
    from dgmark_lab.halving import halve
    from dgmark_lab.trials import Trials, candidates_of

    model = load_model(**loading)
    kept = rows or out.with_suffix(".trials.jsonl")
    trials = Trials(model, load_judge(judge_name), settings, read, tokens, fpr, kept, batch_size, pad, chat)
    trials.check()
    given = {"alpha": alpha, "farthest": farthest, "min_relative_reward": min_relative_reward, "lookahead": lookahead}
    candidates = candidates_of(trials.config, rule, **given)
    with row_bar("texts") as bar:

        def measure(reference: "Candidate", some: "Sequence[Candidate]", count: int) -> "list[Standing]":
            what = f"{len(some)} {'candidates' if some[0].rule else 'unmarked samplers'} on {count} prompts"
            return trials.standings(some, reference, count, lambda done, total: bar.show(what, done, total))

        own = trials.samplers[0]
        samplers = halve(trials.samplers, len(read), partial(measure, own))
        reference = next((one for one, found in samplers if found.meets_goal), own)
        ranked = halve(candidates, len(read), partial(measure, reference))
    tuned = _tuned(trials, reference, *ranked[0])
    write_settings_file(out, tuned)
    if plot is not None:
        atomic_write(plot, _picture(ranked))
    _show(ranked, out, tuned, as_json=as_json)


def _prompts(file: Path, most: int) -> "list[Prompt]":
    """The first prompts of the file.

    Raises:
        InputError: a row has no prompt, or there are too few.
    """
    prompts: list[Prompt] = []
    for row in islice(read_good_rows(str(file)), most):
        prompt = prompt_of(row)
        if isinstance(prompt, BadRow):
            raise InputError(f"row {row['id']!r} has {prompt.error}")
        prompts.append(prompt)
    if len(prompts) < MIN_TEXTS:
        raise InputError(
            f"{file} has {len(prompts)} prompts, too few to compare settings: give at least {MIN_TEXTS}, better {most}"
        )
    return prompts


def _judge_of(judge: str | None, loading: opt.Loading) -> str:
    """The judge: the built-in one knows the language of the built-in models, and nothing of others.

    Raises:
        SettingsError: another model has no judge.
    """
    if judge is not None:
        return judge
    if loading.get("name_or_path", BUILTIN) in (BUILTIN, NARRATOR):
        return "builtin"
    raise SettingsError(
        "the built-in judge is too small to judge other models than the built-in ones: give --judge with an "
        "autoregressive model that is at least as good, in the language of the prompts"
    )


def _tuned(trials: "Trials", reference: "Candidate", best: "Candidate", its: "Standing") -> TunedSettings:
    from dgmark.models.denoiser import traits_of

    measured: dict[str, Any] = {
        "texts": its.texts,
        "tokens": trials.tokens,
        "rate": trials.rate,
        "judge": trials.judge.name,
        "diversity": round(its.diversity, 4),
        "perplexity": round(its.perplexity, 4),
        "bits": round(its.bits, 4),
        "found": its.found,
        "match": round(its.match, 2),
        "meets_goal": its.meets_goal,
        "reference": reference.name,
        **({"farthest": best.farthest} if best.farthest else {}),
    }
    assert best.rule is not None
    decoding = {**trials.settings, **dict(best.settings)}
    return TunedSettings(model=traits_of(trials.model).name, rule=best.rule, decoding=decoding, measured=measured)


def _picture(ranked: "Sequence[tuple[Candidate, Standing]]") -> bytes:
    """The last candidates with their standard errors, the best first, and lines at the borders of the goal."""
    from dgmark_lab.experiments.estimates import Estimate
    from dgmark_lab.experiments.figures import Line, line_figure
    from dgmark_lab.halving import MAX_PERPLEXITY, MIN_DIVERSITY

    lines = []
    for place, (one, found) in enumerate(ranked, 1):
        error = found.perplexity * found.log_perplexity_error
        x = Estimate(found.diversity, found.diversity - found.diversity_error, found.diversity + found.diversity_error)
        y = Estimate(found.perplexity, found.perplexity - error, found.perplexity + error)
        lines.append(Line(f"{place}: {one.name} ({found.bits:.2f} bits a token)", [(x, y)], [str(place)]))
    figure = line_figure(
        lines,
        x="distinct-2, as a multiple of your unmarked text's",
        y="perplexity, as a multiple of the best unmarked text's",
        title="The goal is right of and below the dotted lines",
        width=9.5,
    )
    figure.axes[0].axvline(MIN_DIVERSITY, color="0.5", linestyle=":")
    figure.axes[0].axhline(MAX_PERPLEXITY, color="0.5", linestyle=":")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def _show(ranked: "Sequence[tuple[Candidate, Standing]]", out: Path, tuned: TunedSettings, *, as_json: bool) -> None:
    best, its = ranked[0]
    if as_json:
        rows = [{"candidate": one.name, **asdict(found), "meets_goal": found.meets_goal} for one, found in ranked]
        print(json.dumps({"settings": tuned.model_dump(), "candidates": rows, "schema": TUNE_SCHEMA}))
    else:
        table = Table("settings", "texts", "diversity", "perplexity", "bits a token", "found", "goal")
        for one, found in ranked:
            table.add_row(
                one.name,
                str(found.texts),
                f"{found.diversity:.3f} ± {found.diversity_error:.3f}",
                f"{found.perplexity:.3f} ± {found.perplexity * found.log_perplexity_error:.3f}",
                f"{found.bits:.3f}",
                f"{found.found:.0%}",
                "met" if found.meets_goal else "missed",
            )
        stdout().print(table)
        stdout().print(
            "Diversity is a multiple of your unmarked text's, and perplexity of that of the best unmarked text that is "
            f"as diverse ({tuned.measured['reference']}), ± one standard error.",
            markup=False,
        )
    if not its.meets_goal:
        lacks = [f"{1 - its.diversity:.1%} less diverse than unmarked text"] if its.diversity < 1 else []
        over = [f"{its.perplexity:.2f} times as perplexing, not 1.05"] if its.perplexity > 1.05 else []
        stderr().print(f"no settings meet the goal; the best are {' and '.join([*lacks, *over])}", markup=False)
    options = f" --rule {tuned.rule}" + (f" --farthest {best.farthest}" if best.farthest else "")
    # what a key expects of its model lies between chance and certainty
    options += f" --expected-match {its.match:.2f}" if 0.505 <= its.match < 0.995 else ""
    stderr().print(
        f"{out}: {best.name}\nUse them with a key of this rule:\n"
        f"  dgmark keygen key.json{model_option(tuned.model)}{options}\n"
        f"  dgmark generate --key key.json{model_option(tuned.model)} --settings {out} --prompt ...",
        markup=False,
    )
