"""`dgmark keygen` and `dgmark key`: make a key file, show its public contents, and prove that it is old."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dgmark.checkpoint.families import family_of
from dgmark.checkpoint.folder import BUILTIN, BUILTINS, find_checkpoint, model_option
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.options import AllowOpenKey, NewKeyFile, OneObject, set_options
from dgmark.detection.detector import DEFAULT_FPR, check_fpr
from dgmark.detection.expected import MAX_TOKENS, expected_p, tokens_needed
from dgmark.errors import CheckpointFormat
from dgmark.models.special_ids import find_end_ids, find_mask_id
from dgmark.watermark.bigrams import DISTANCES, MAX_DISTANCE
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.key import DEFAULT_SUBKEYS, WatermarkKey, block_length_of
from dgmark.watermark.spec import DEFAULT_CODE

# tokens of the text that `keygen` speaks of
TOKENS = 256


def key_options(
    rule: Annotated[
        Literal["bigram", "position"] | None,
        typer.Option(
            help="What is marked: pairs of nearby tokens, or each token at its position (the paper's rule).",
            show_default="bigram; position with --modulus, --rotation, --grouping or --code-length",
        ),
    ] = None,
    nearest: Annotated[
        int | None,
        typer.Option(help="Bigram: smallest distance of a pair, in tokens.", show_default=str(DISTANCES[0])),
    ] = None,
    farthest: Annotated[
        int | None,
        typer.Option(help=f"Bigram: largest distance of a pair, up to {MAX_DISTANCE}.", show_default=str(DISTANCES[1])),
    ] = None,
    modulus: Annotated[
        int | None, typer.Option(help="Position: number of token groups, 2 to 16.", show_default="2")
    ] = None,
    rotation: Annotated[
        int | None, typer.Option(help="Position: change the groups after so many positions.", show_default="never")
    ] = None,
    grouping: Annotated[
        Literal["keyed", "token-id"] | None,
        typer.Option(
            help="Position: groups by the secret key, or by token id (as in the paper's code, without a secret).",
            show_default="keyed",
        ),
    ] = None,
    code_length: Annotated[
        int | None,
        typer.Option(
            help="Position: period of a secret code, a multiple of --modulus, up to 64; 0: the paper's position mod m.",
            show_default=f"{DEFAULT_CODE}; 0 with --rotation, --grouping token-id or another --modulus",
        ),
    ] = None,
    subkeys: Annotated[
        int | None,
        typer.Option(
            help="Bigram: mark each text with one of this many sub-keys, drawn at random: a power of two up to 65536; "
            "1: all texts are marked alike.",
            show_default=str(DEFAULT_SUBKEYS),
        ),
    ] = None,
    expected_match: Annotated[
        float | None,
        typer.Option(
            help="Share of the pairs (position: of the tokens) that match in a typical text of the model, by which a "
            "text is too short to tell.",
            show_default="what was measured at the model's own block length",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Whose texts it marks, such as ACME: verdicts name it.")] = None,
) -> dict[str, Any]:
    """The arguments of `WatermarkKey.generate` that are set."""
    return set_options(locals())


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
    said = (
        f"A sampled text of {TOKENS} tokens is expected to reach p = {p:.0e}; "
        f"{DEFAULT_FPR:g} takes {_count(needed)} tokens (`dgmark key show` has more)"
    )
    if p <= 1e-6:
        return said
    warning = f"{said}\nwarning: that is a weak mark: use longer texts"
    if not key.spec.needs_long_blocks or block is None or block >= 32:
        return warning
    return f"{warning}, and longer blocks where the model allows; blocks of {block} leave little order to choose"


def _count(tokens: int | None) -> str:
    return f"over {MAX_TOKENS:,}" if tokens is None else f"about {tokens:,}"


def _next_steps(file: Path, model: str, key: WatermarkKey, can_generate: bool) -> str:
    quoted = shlex.quote(str(file))
    named = model_option(model)
    # a mark makes text more diverse: lab/docs/results
    if model == BUILTIN and key.spec.storyteller_temperature is not None:
        named = f" --temperature {key.spec.storyteller_temperature}"
    write = f"  dgmark generate --key {quoted}{named} --prompt 'Once upon a time' > text.txt   write a marked text\n"
    payload = " --payload" * (key.spec.subkeys not in (1, DEFAULT_SUBKEYS))
    return (
        "Next:\n"
        f"{write if can_generate else ''}"
        f"  dgmark detect --key {quoted}{payload} text.txt   look for the mark\n"
        "Keep a copy of the file in a safe place: without it the mark cannot be detected, and with it anybody can\n"
        "forge the mark."
    )


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
