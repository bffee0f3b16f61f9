"""`dgmark keygen` and `dgmark key`: make a key file, show its public contents, and prove that it is old."""

import inspect
import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import typer
from pydantic.fields import FieldInfo

from dgmark.checkpoint.families import family_of
from dgmark.checkpoint.folder import BUILTIN, BUILTINS, find_checkpoint, model_option
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.demo import SHOWS
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.options import AllowOpenKey, NewKeyFile, OneObject, set_options
from dgmark.detection.detector import DEFAULT_FPR, check_fpr
from dgmark.detection.expected import MAX_TOKENS, expected_p, tokens_needed
from dgmark.errors import CheckpointFormat
from dgmark.models.special_ids import find_end_ids, find_mask_id
from dgmark.watermark.bigram import DEFAULT_SUBKEYS
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.key import WatermarkKey, block_length_of
from dgmark.watermark.rules import Rule, find_rule, rule_names
from dgmark.watermark.spec import options_of

# tokens of the text that `keygen` speaks of
TOKENS = 256
_CLEARLY_BETTER = 0.03  # of the share of matches


def key_options(**options: Any) -> dict[str, Any]:
    """The arguments of `WatermarkKey.generate` that are set."""
    return set_options(options)


def _key_parameters() -> list[inspect.Parameter]:
    """The parameters of `key_options`: the rule, what all keys have, and the options of each rule.

    An option that several rules have is one parameter, whose help names them.
    """
    rules = [find_rule(name) for name in rule_names()]
    options: dict[str, list[tuple[Rule, FieldInfo]]] = {}
    for rule in rules:
        for name, field in options_of(rule.spec).items():
            options.setdefault(name, []).append((rule, field))
    named = typer.Option(
        metavar="RULE",
        help="What is marked: bigram (pairs of nearby tokens), position (each token at its position, the paper's rule)"
        + "".join(f", {rule.name}" for rule in rules if rule.distribution)
        + ".",
        show_default="bigram; position with one of its options",
    )
    match = typer.Option(
        help="Share of the pairs (position: of the tokens) that match in a typical text of the model, by which a text "
        "is too short to tell.",
        show_default="what was measured at the model's own block length",
    )
    name = typer.Option(help="Whose texts it marks, such as ACME: verdicts name it.")
    return [
        _parameter("rule", str, named),
        *(_option_of_rules(option, having) for option, having in options.items()),
        _parameter("expected_match", float, match),
        _parameter("name", str, name),
    ]


def _option_of_rules(name: str, having: list[tuple[Rule, FieldInfo]]) -> inspect.Parameter:
    """One option, of the rules that have it."""
    rule, field = having[0]
    extra: Any = field.json_schema_extra or {}
    default = rule.spec.defaults_of_new({}).get(name, None if field.is_required() else field.default)
    shown = extra.get("default_text", ",".join(map(str, default)) if isinstance(default, tuple) else str(default))
    rules = ", ".join(one.name for one, _ in having)
    kind: Any = next((kind for kind in (bool, int, float) if isinstance(default, kind)), str)
    if len(having) == 1 and get_origin(field.annotation) is Literal:
        kind = field.annotation
    return _parameter(name, kind, typer.Option(help=f"{rules}: {extra.get('help', '')}", show_default=shown))


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


# typer reads the options of a command from a signature
key_options.__signature__ = inspect.Signature(_key_parameters())  # type: ignore[attr-defined]


@command_errors
@option_groups
def keygen(
    file: NewKeyFile,
    options: Annotated[dict[str, Any], OptionGroup(key_options)],
    model: Annotated[str, typer.Option(help="Model whose tokenizer the key is bound to.")] = BUILTIN,
) -> None:
    """Make a secret key. Whoever has it can detect and forge the mark: keep it as you would keep a signing key."""
    key = WatermarkKey.generate(model, **options)
    key.save(file)
    if key.keyless:
        stderr().print(
            "warning: a token-id key has no secret: anybody can detect and forge its mark, "
            "and its p-values are not guaranteed"
        )
    refusal = _refusal(model)
    if refusal is not None:
        stderr().print(
            f"warning: dgmark generate will refuse this model: {refusal}\n"
            "The key fits its tokenizer: with it an engine or a loop of your own can mark texts (docs/integrating.md), "
            "and they are detected",
            markup=False,
        )
    print(f"{file}: key {key.fingerprint} for {model}")
    if key.spec.expected_match is not None:
        stderr().print(_expectation(key, block_length_of(model)), markup=False)
    stderr().print(_next_steps(file, model, key, can_generate=refusal is None), markup=False)


def _refusal(model: str) -> str | None:
    """Why `generate` would refuse a model, as far as config.json and the tokenizer show it; None if they do not."""
    if model in BUILTINS:
        return None
    checkpoint, tokenizer = find_checkpoint(model), load_tokenizer(model)
    try:
        family = family_of(checkpoint)
        find_mask_id(checkpoint, tokenizer, family)
        find_end_ids(checkpoint, tokenizer, family)
    except CheckpointFormat as error:
        return str(error)
    return None


def _expectation(key: WatermarkKey, block: int | None) -> str:
    """What a text of the key's model is expected to carry, with a warning where that is little."""
    p, needed = expected_p(key.spec, TOKENS), tokens_needed(key.spec, DEFAULT_FPR)
    assert p is not None  # a key that knows its expected match is of a rule that knows this
    said = (
        f"A sampled text of {TOKENS} tokens is expected to reach p = {p:.0e}; "
        f"{DEFAULT_FPR:g} takes {_count(needed)} tokens (`dgmark key show` has more)"
    )
    if p <= 1e-6:
        return said
    warning = f"{said}\nwarning: that is a weak mark: use longer texts"
    if block is None or not _gains_by_longer_blocks(key, block):
        return warning
    return f"{warning}, and longer blocks where the model allows; blocks of {block} leave little order to choose"


def _gains_by_longer_blocks(key: WatermarkKey, block: int) -> bool:
    """Whether longer blocks would mark clearly better, as where the order carries the mark."""
    here, longer = (key.rule.expected_match(key.spec, length) for length in (block, 64))
    return here is not None and longer is not None and longer - here > _CLEARLY_BETTER


def _count(tokens: int | None) -> str:
    return f"over {MAX_TOKENS:,}" if tokens is None else f"about {tokens:,}"


def _next_steps(file: Path, model: str, key: WatermarkKey, can_generate: bool) -> str:
    quoted = shlex.quote(str(file))
    named = model_option(model)
    temperature = _storyteller_temperature(key)
    if model == BUILTIN and temperature is not None:
        named = f" --temperature {temperature}"
    write = f"  dgmark generate --key {quoted}{named} --prompt 'Once upon a time' > text.txt   write a marked text\n"
    payload = " --payload" * (key.spec.subkeys not in (1, DEFAULT_SUBKEYS))
    return (
        "Next:\n"
        f"{write if can_generate else ''}"
        f"  dgmark detect --key {quoted}{payload} text.txt   look for the mark\n"
        "Keep a copy of the file in a safe place: without it the mark cannot be detected, and with it anybody can\n"
        "forge the mark."
    )


def _storyteller_temperature(key: WatermarkKey) -> float | None:
    """The temperature at which the storyteller's marked texts are as diverse as unmarked ones; None if unknown.

    A mark makes text more diverse (lab/docs/results). What was measured is known of the same keys as their share of
    matches.
    """
    if key.rule.expected_match(key.spec, 64) is None:
        return None
    return SHOWS[BUILTIN].marked.get(key.spec.rule, {}).get("temperature")


key_app = typer.Typer(no_args_is_help=True)


@key_app.callback()
def key() -> None:
    """Show what is in a key file, and prove that a key is older than a text."""


@key_app.command("show")
@command_errors
def show(
    file: Annotated[Path, typer.Argument(help="Key file to show.")],
    fpr: Annotated[float, typer.Option(help="False-positive rate that texts are to reach.")] = DEFAULT_FPR,
    as_json: OneObject = False,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Show the public contents of a key file, never the secret, and how many tokens its texts need."""
    check_fpr(fpr)
    key = WatermarkKey.load(file, allow_open=allow_open_key)
    half, most = (tokens_needed(key.spec, fpr, most=most) for most in (False, True))
    public = {
        "key_fingerprint": key.fingerprint,
        "key_id": key.key_id,
        "name": key.name,
        "prf": key.spec.prf,
        **key.spec.to_fields(),
        "schema": 1,
    }
    if as_json:
        print(json.dumps({**public, "fpr": fpr, "tokens_needed": {"half": half, "most": most}}))
        return
    for name, value in public.items():
        stdout().print(f"{name:<22} {value}", markup=False)
    needed = f"tokens needed for p <= {fpr:g}: {_count(half)} (half of the texts), {_count(most)} (95 % of them)"
    stdout().print(f"\n{needed}", markup=False)


@key_app.command("commit")
@command_errors
def commit(
    file: Annotated[Path, typer.Argument(help="Key file to commit to.")],
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Print a commitment to a key, to be published before texts are marked. It reveals nothing of the secret."""
    commitment = KeyCommitment.of(WatermarkKey.load(file, allow_open=allow_open_key))
    print(commitment.model_dump_json(indent=2))
    stderr().print(
        "Next: publish this where its date can be proved, as by an authority's time stamp (docs/commitments.md):\n"
        f"  openssl ts -query -sha256 -cert -digest {commitment.sha256} -out commitment.tsq",
        markup=False,
    )


@key_app.command("verify")
@command_errors
def verify(
    file: Annotated[Path, typer.Argument(help="Key file.")],
    commitment: Annotated[Path, typer.Argument(help="Commitment that `dgmark key commit` printed.")],
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Check that a key meets a commitment. Exits with 0 only if it does."""
    key, made = WatermarkKey.load(file, allow_open=allow_open_key), KeyCommitment.load(commitment)
    made.check(key)
    print(f"{file}: key {key.fingerprint} meets the commitment, which says that it was made at {made.created}")
