"""`dgmark generate`: prompts in, marked texts out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgmark.checkpoint.folder import BUILTIN
from dgmark.cli import options as opt
from dgmark.cli.console import speaks, stderr, stdout
from dgmark.cli.keys import key_to_mark_with
from dgmark.cli.live import show_stream
from dgmark.cli.schemes import SchemeName, SchemeOptions, scheme_of
from dgmark.errors import DgmarkError, EmptyInput, InputError, MissingExtra, ResumeMismatch, SettingsError, install_hint
from dgmark.rows.jsonl import BadRow, Row, parse_rows, read_rows, to_line
from dgmark.rows.row_file import RowFile
from dgmark.rows.texts import is_rows
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.decode import DecodeConfig
    from dgmark.lab.baselines import Scheme
    from dgmark.models.network import NetworkDenoiser

# fields by which a finished row is known to answer the same question
_SAME = ("prompt", "seed")

# (row id, prompt, seed), or what is wrong with the row
Item = tuple[str, "str | list[int]", int] | BadRow


@speaks
def generate(
    key: opt.KeyToMark = None,
    no_watermark: opt.NoWatermark = False,
    scheme: SchemeName = None,
    scheme_option: SchemeOptions = None,
    model: opt.Model = BUILTIN,
    prompt: Annotated[str | None, typer.Option(help="One prompt.", show_default=False)] = None,
    prompts: Annotated[
        str | None, typer.Option(help='JSON Lines with "id" and "prompt"; - is stdin.', show_default=False)
    ] = None,
    out: opt.RowsOut = None,
    length: Annotated[int | None, typer.Option(help="Response tokens.", show_default="256")] = None,
    block_length: opt.BlockLength = None,
    strategy: opt.Strategy = None,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    lookahead: opt.Lookahead = None,
    lookahead_scope: opt.LookaheadScope = None,
    lookahead_proposals: opt.LookaheadProposals = None,
    commit: opt.Commit = None,
    threshold: opt.Threshold = None,
    factor: opt.Factor = None,
    steps: opt.Steps = None,
    schedule: opt.Schedule = None,
    cache: opt.Cache = None,
    guard: opt.Guard = None,
    repetition_guard: opt.RepetitionGuard = None,
    seed: Annotated[int, typer.Option(help="Row i is drawn with seed + i.")] = 0,
    batch_size: opt.BatchSize = 8,
    pad: opt.Pad = None,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    family: opt.Family = None,
    quantization: opt.Quantization = None,
    device_map: opt.DeviceMap = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put prompts into the model's chat template.")] = False,
    live: Annotated[
        bool, typer.Option("--stream", help="Show the text on stderr as it is decoded (one prompt).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Rows instead of plain text on stdout.")] = False,
    trace: Annotated[bool, typer.Option(help="Put the order of commitment into the rows.")] = True,
    allow_open_key: opt.AllowOpenKey = False,
) -> None:
    """Generate text that carries the mark of a key.

    Give --key FILE to mark, or --no-watermark for the same text generator without a mark. --scheme marks with another
    watermark than dgMARK, in the same loop and with the same key.
    """
    loading, settings = opt.given(locals(), opt.LOADING), opt.given(locals(), opt.DECODING)
    secret = key_to_mark_with(key, no_watermark, allow_open_key)
    marking = scheme_of(scheme, scheme_option)
    if prompt is not None and prompts is not None:
        raise SettingsError("--prompt and --prompts exclude each other")
    items = number(_prompt_rows(prompt, prompts), seed)
    if live and (len(items) != 1 or out is not None):
        raise SettingsError("--stream shows one text: give one prompt, and no --out")
    config, denoiser = _prepare(model, marking, loading, settings)
    from dgmark.decode.generation import recorded
    from dgmark.decode.prompts import steering_of
    from dgmark.models.traits import traits_of

    steering_of(denoiser, secret, marking).check(config)
    must_agree: Row = {
        "model": denoiser.name,
        "key_fingerprint": None if secret is None else secret.fingerprint,
        "scheme": recorded(marking),
        "settings": config.to_dict(),
        "dtype": traits_of(denoiser).number_format,
        "chat": chat,
    }
    with RowFile(out, must_agree, _SAME) if out is not None else nullcontext() as file:
        todo = items if file is None else _open_items(items, file)
        if len(todo) < len(items):
            stderr().print(f"{len(items) - len(todo)} of {len(items)} rows are already in {out}")
        emit = _writer(file, as_json, single=len(items) == 1)
        if live:
            show_stream(denoiser, config, secret, marking, todo[0], trace, chat, emit)
            return
        errors = _run(denoiser, config, secret, marking, todo, batch_size, trace, chat, pad, emit)
    if errors and len(errors) == len(todo):
        raise errors[0]
    if errors:
        stderr().print(f"{len(errors)} of {len(todo)} rows have errors")


def _open_items(items: list[Item], file: RowFile) -> list[Item]:
    """The items that the file has no row of.

    Raises:
        ResumeMismatch: it has a row of the same id that another prompt or seed made.
    """
    for item in items:
        if isinstance(item, BadRow) or item[0] not in file.done:
            continue
        if file.done[item[0]] != dict(zip(_SAME, item[1:], strict=True)):
            raise ResumeMismatch(
                f"{file.path} holds a row {item[0]!r} made from another prompt or seed; choose another --out"
            )
    return [item for item in items if _id(item) not in file.done]


def number(rows: Iterator[Row | BadRow], seed: int) -> list[Item]:
    """Rows as (id, prompt, seed + index).

    Raises:
        EmptyInput: there is no row.
        InputError: two rows have one id.
    """
    items: list[Item] = []
    seen: set[str] = set()
    for index, row in enumerate(rows):
        item = row if isinstance(row, BadRow) else _item(row, seed + index)
        if _id(item) in seen:
            raise InputError(f"two rows have the id {_id(item)!r}: ids tell finished rows from open ones")
        seen.add(_id(item))
        items.append(item)
    if not items:
        raise EmptyInput("there is no prompt to continue")
    return items


def _item(row: Row, seed: int) -> Item:
    prompt = row.get("prompt")
    if isinstance(prompt, str) or (isinstance(prompt, list) and all(type(i) is int for i in prompt)):
        return row["id"], prompt, seed
    return BadRow(row["id"], 'no "prompt" (a text, or a list of token ids)')


def _id(item: Item) -> str:
    return item.row_id if isinstance(item, BadRow) else item[0]


def _prompt_rows(prompt: str | None, prompts: str | None) -> Iterator[Row | BadRow]:
    if prompt is not None:
        return iter([{"id": "0", "prompt": prompt}])
    if prompts is not None:
        return read_rows(prompts)
    if sys.stdin.isatty():
        raise SettingsError("give --prompt TEXT, --prompts FILE.jsonl, or a prompt on standard input")
    content = sys.stdin.buffer.read()
    if is_rows(content):
        return parse_rows(content.splitlines(), "stdin")
    text = content.decode("utf-8", "replace").rstrip("\n")
    return iter([{"id": "0", "prompt": text}] if text else [])


def _prepare(
    model: str, scheme: "Scheme | None", loading: dict[str, Any], settings: dict[str, Any]
) -> "tuple[DecodeConfig, NetworkDenoiser]":
    try:
        from dgmark.decode.prompts import config_of
        from dgmark.models.load import load_model
    except ImportError as error:
        raise MissingExtra(f"generating needs torch and transformers: {install_hint('generate')} ({error})") from None
    loaded = load_model(model, **loading)
    return config_of(loaded, scheme, settings), loaded  # type: ignore[arg-type]


def _run(
    model: "NetworkDenoiser",
    config: "DecodeConfig",
    key: WatermarkKey | None,
    scheme: "Scheme | None",
    items: list[Item],
    batch_size: int,
    with_trace: bool,
    chat: bool,
    pad: bool | None,
    emit: Callable[[list[Row]], None],
) -> list[DgmarkError]:
    """Generate batch by batch, in order, handing each finished batch on; rows that cannot be done become errors."""
    from dgmark.decode.generation import GENERATION_SCHEMA, generations
    from dgmark.decode.prompts import Prepared, Request

    errors: list[DgmarkError] = []
    good = [item for item in items if not isinstance(item, BadRow)]
    requests = [Request(prompt, seed, key) for _, prompt, seed in good]
    prepared = Prepared.of(model, requests, config, scheme=scheme, chat=chat, pad=pad, strict=False)
    numbers = {item[0]: row for row, item in enumerate(good)}
    with _bar(len(items) * config.length) as advance:
        for start in range(0, len(items), batch_size):
            batch, rows = items[start : start + batch_size], {}
            wanted = [numbers[_id(item)] for item in batch if _id(item) in numbers]
            made = iter(generations(prepared, wanted, advance))
            for item in batch:
                error = InputError(item.error) if isinstance(item, BadRow) else prepared.refused.get(numbers[item[0]])
                if error is not None:
                    errors.append(error)
                    rows[_id(item)] = BadRow(_id(item), str(error)).to_row(GENERATION_SCHEMA)
                else:
                    rows[_id(item)] = next(made).to_row(_id(item), with_trace=with_trace)
            emit([rows[_id(item)] for item in batch])
    return errors


@contextmanager
def _bar(tokens: int) -> Iterator[Callable[[int], None] | None]:
    console = stderr()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.completed}/{task.total} tokens"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=tokens)
        yield lambda count: bar.advance(task, count)


def _writer(file: RowFile | None, as_json: bool, single: bool) -> Callable[[list[Row]], None]:
    def emit(rows: list[Row]) -> None:
        if file is not None:
            file.append(rows)
        if as_json:
            for row in rows:
                print(to_line(row), flush=True)
        elif file is None:
            for row in (row for row in rows if "error" not in row):
                if not single:
                    stdout().print(f"── {row['id']}", style="dim", markup=False)
                print(row["text"], flush=True)

    return emit
