"""`dgmark keygen` and `dgmark key`: make a key file, show its public contents, and prove that it is old."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from dgmark.arguments.contents import content_of
from dgmark.checkpoint.families import family_of
from dgmark.checkpoint.folder import BUILTIN, BUILTINS, find_checkpoint, model_option
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.cli.console import command_errors, stderr, stdout, tell_of_key, visible
from dgmark.cli.demo import SHOWS
from dgmark.cli.options import NEW_KEY_FILE, AllowOpenKey, ModelContext, OneObject, SurprisalModel, Tokenizer
from dgmark.cli.panels import Commands
from dgmark.detection.detector import DEFAULT_FPR, Detector, check_fpr
from dgmark.detection.key_check import TEMPLATE_LEVEL, KeyCheck, check_on_texts
from dgmark.detection.statistics.expected import MAX_TOKENS, expected_p, tokens_needed
from dgmark.detection.statistics.rules import language_model
from dgmark.errors import CheckpointFormat, InputError, SettingsError
from dgmark.files.inputs import names_of
from dgmark.models.special_ids import find_edit_ids, find_end_ids, find_mask_id
from dgmark.rows.sources import read_sources
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.key import WatermarkKey, block_length_of
from dgmark.watermark.key_file import new_key_file

TOKENS = 256  # of a text that a mark must show in
_WORDS_OF_A_TOKEN = 0.75  # of English
KeyToRead = Annotated[Path, typer.Argument(metavar="KEY", help="Key: a file, a name, or - for standard input.")]
_CLEARLY_BETTER = 0.03  # of the share of matches


RuleName = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="What is marked: bigram (pairs of nearby tokens), position (each token at its position, the paper's "
        "rule), or a rule of another package: `--rule NAME --help` shows its options.",
        show_default="bigram; position with one of its options",
    ),
]
ExpectedMatch = Annotated[
    float | None,
    typer.Option(
        help="Share of the pairs (position: of the tokens) that match in a typical text of the model, used to "
        "decide when a text is too short to judge.",
        show_default="what was measured at the model's own block length",
    ),
]


@command_errors
def keygen(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help=NEW_KEY_FILE, show_default="in your folder of keys, by --name")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Whose texts it marks, such as press: verdicts name it, and --key finds it without a FILE."),
    ] = None,
    model: Annotated[str, typer.Option(help="Model whose tokenizer the key is bound to.")] = BUILTIN,
    rule: RuleName = None,
    expected_match: ExpectedMatch = None,
) -> None:
    """Make a secret key. Whoever has it can detect and forge the mark: keep it as you would keep a signing key."""
    called = str(file)
    if file is None:
        if name is None:
            raise SettingsError("give a FILE for the key, or --name NAME to have it in your folder of keys")
        file, called = new_key_file(name), name
    key = WatermarkKey.generate(model, rule=rule, expected_match=expected_match, name=name, **ctx.obj)
    key.save(file)
    if key.spec.caution:
        stderr().print(f"warning: {key.spec.caution}")
    refusal = _refusal(model)
    if refusal is not None:
        stderr().print(
            f"warning: dgmark generate will refuse this model: {refusal}\n"
            "The key fits its tokenizer: with it an engine or a loop of your own can mark texts (docs/integrating.md), "
            "and they are detected"
        )
    tell_of_key(file, f"key {key.fingerprint} for {model}")
    if key.spec.expected_match is not None and key.rule.expects(key.spec):
        stderr().print(_expectation(key, block_length_of(model)))
    stderr().print(_next_steps(called, model, key, can_generate=refusal is None))


def _refusal(model: str) -> str | None:
    """Why `generate` would refuse a model, as far as config.json and the tokenizer show it; None if they do not."""
    if model in BUILTINS:
        return None
    checkpoint, tokenizer = find_checkpoint(model), load_tokenizer(model)
    try:
        family = family_of(checkpoint)
        find_edit_ids(checkpoint, family, {find_mask_id(checkpoint, tokenizer, family)})
        find_end_ids(checkpoint, tokenizer, family)
    except CheckpointFormat as error:
        return str(error)
    return None


def _expectation(key: WatermarkKey, block: int | None) -> str:
    """How long a marked text of the key's model must be, with a warning where that is long."""
    p = expected_p(key.spec, TOKENS)
    assert p is not None  # the rule expects something
    said = _length_needed(key, DEFAULT_FPR)
    if p <= 1e-6:
        return said
    warning = f"{said}\nwarning: that is a weak mark: use longer texts"
    if block is None or not _gains_by_longer_blocks(key, block):
        return warning
    return f"{warning}, and longer blocks where the model allows; blocks of {block} leave little order to choose"


def _length_needed(key: WatermarkKey, fpr: float) -> str:
    """How long a marked text must be to be found, in one sentence; of other packages' rules it may not be known."""
    if not key.rule.expects(key.spec):
        return f"How long a text must be to be found is not known for rule {key.spec.rule}."
    most, half = (_words(tokens_needed(key.spec, fpr, most=most)) for most in (True, False))
    return f"A marked text of {most} is nearly always found, and one of {half} half of the time (at a rate of {fpr:g})."


def _words(tokens: int | None) -> str:
    if tokens is None:
        return f"over {MAX_TOKENS:,} tokens"
    return f"about {-(-tokens * _WORDS_OF_A_TOKEN // 10) * 10:,.0f} words ({tokens:,} tokens)"


def _gains_by_longer_blocks(key: WatermarkKey, block: int) -> bool:
    """Whether longer blocks would mark clearly better, as where the order carries the mark."""
    here, longer = (key.rule.expected_match(key.spec, length) for length in (block, 64))
    return here is not None and longer is not None and longer - here > _CLEARLY_BETTER


def _next_steps(file: str, model: str, key: WatermarkKey, can_generate: bool) -> str:
    quoted = shlex.quote(file)
    named = model_option(model)
    temperature = _storyteller_temperature(key)
    if model == BUILTIN and temperature is not None:
        named = f" --temperature {temperature}"
    write = f"  dgmark generate --key {quoted}{named} 'Once upon a time' > text.txt   write a marked text\n"
    usual = key.rule.spec.defaults_of_new({}).get("subkeys", 1)
    payload = " --payload" * (key.spec.subkeys not in (1, usual))
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


key_app = Commands(no_args_is_help=True)


@key_app.callback()
def key() -> None:
    """Show what is in a key file, test it on unmarked texts, and prove that a key is older than a text."""


@key_app.command("show")
@command_errors
def show(
    file: KeyToRead,
    fpr: Annotated[float, typer.Option(help="False-positive rate that texts are to reach.")] = DEFAULT_FPR,
    as_json: OneObject = False,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Show the public contents of a key file, never the secret, and how many tokens its texts need."""
    check_fpr(fpr)
    key = WatermarkKey.load(file, allow_open=allow_open_key)
    public = {
        "key_fingerprint": key.fingerprint,
        "key_id": key.key_id,
        "name": key.name,
        "prf": key.spec.prf,
        **key.spec.to_fields(),
        "schema": 1,
    }
    if as_json:
        half, most = (tokens_needed(key.spec, fpr, most=most) for most in (False, True))
        needed = {"half": half, "most": most} if key.rule.expects(key.spec) else None
        print(json.dumps({**public, "fpr": fpr, "tokens_needed": needed}))
        return
    for name, value in public.items():
        stdout().print(f"{name:<22} {value}")
    stdout().print(f"\n{_length_needed(key, fpr)}")


@key_app.command("check")
@command_errors
def check(
    file: KeyToRead,
    texts: Annotated[
        list[str],
        typer.Option(help="Unmarked traffic: documents, folders, or JSON Lines of texts; repeatable."),
    ],
    surprisal_model: SurprisalModel = None,
    context: ModelContext = None,
    tokenizer: Tokenizer = None,
    as_json: OneObject = False,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Test texts that nobody marked: how many look marked under this key, and which of them do so together.

    Exits with 1 if the key should not be used for such texts. A file that is given twice counts once.
    """
    key = WatermarkKey.load(file, allow_open=allow_open_key)
    model = language_model(surprisal_model, [key], context=context)
    detector = Detector(key, tokenizer=tokenizer, surprisal_model=model)
    items = list(read_sources([*{os.path.realpath(name): name for name in names_of(texts)}.values()]))
    usable = [(item.name, content_of(item.content)) for item in items if item.error is None]
    unusable = [item for item in items if item.error is not None]
    if not usable:
        why = f"{unusable[0].name}: {unusable[0].error}" if unusable else "give unmarked texts with --texts"
        raise InputError(f"there is no text to test: {why}")
    found = check_on_texts(detector, usable)
    if as_json:
        print(json.dumps(_check_fields(found, key, len(unusable))))
    else:
        for item in unusable:
            stderr().print(f"{item.name}: {item.error}")
        _print_check(found)
    if found.above or found.templates:
        raise typer.Exit(1)


def _check_fields(found: KeyCheck, key: WatermarkKey, unusable: int) -> dict[str, Any]:
    return {
        "key_fingerprint": key.fingerprint,
        "texts": found.texts,
        "unusable": unusable,
        "shares": [share._asdict() for share in found.shares],
        "templates": [{**template._asdict(), "ids": list(template.ids)} for template in found.templates],
        "advice": found.advice,
        "schema": 1,
    }


def _print_check(found: KeyCheck) -> None:
    print(f"{found.texts:,} texts. Share with a p-value of at most")
    for level, texts, share, low, high in found.shares:
        print(f"  {level:<7g} {share:.5f}  95 % interval {low:.5f} to {high:.5f} ({texts:,})")
    for template in found.templates:
        first = visible(", ".join(template.ids[:3]))
        print(
            f"{len(template.ids):,} texts share most of their pairs ({first}, ...): {template.found:,} of them have "
            f"p <= {TEMPLATE_LEVEL:g}; the smallest p is {template.smallest:.1e}"
        )
    print(found.advice)


@key_app.command("commit")
@command_errors
def commit(
    file: KeyToRead,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Print a commitment to a key, to be published before texts are marked. It reveals nothing of the secret."""
    commitment = KeyCommitment.of(WatermarkKey.load(file, allow_open=allow_open_key))
    print(commitment.model_dump_json(indent=2))
    stderr().print(
        "Next: publish this where its date can be proved, as by an authority's time stamp (docs/keys.md):\n"
        f"  openssl ts -query -sha256 -cert -digest {commitment.sha256} -out commitment.tsq"
    )


@key_app.command("verify")
@command_errors
def verify(
    file: KeyToRead,
    commitment: Annotated[Path, typer.Argument(help="Commitment that `dgmark key commit` printed.")],
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Check that a key meets a commitment. Exits with 0 only if it does."""
    key, made = WatermarkKey.load(file, allow_open=allow_open_key), KeyCommitment.load(commitment)
    made.check(key)
    print(f"{file}: key {key.fingerprint} meets the commitment, which says that it was made at {made.created}")
