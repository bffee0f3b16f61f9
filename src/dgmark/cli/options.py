"""Options that several commands have, as types: one name, one meaning, one sentence of help everywhere."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

# --- the key
KeyToMark = Annotated[Path | None, typer.Option(help="Key file to mark with.", show_default=False)]
NoWatermark = Annotated[bool, typer.Option("--no-watermark", help="The same loop without a mark.")]
AllowOpenKey = Annotated[bool, typer.Option(help="Accept a key file that every user can read.")]

# --- the model; `LOADING` are those that `load_model` takes
Model = Annotated[str, typer.Option(help="Built-in model name, checkpoint folder, or hub id.")]
Device = Annotated[str | None, typer.Option(help="A torch device; by default the GPU if any.")]
Dtype = Annotated[str | None, typer.Option(help="bf16 or fp32; by default the faster here.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.", show_default=False)]
Family = Annotated[str | None, typer.Option(help="Model family, where config.json does not tell.", show_default=False)]
Quantization = Annotated[str | None, typer.Option(help="int8 or int4 while loading.", show_default=False)]
DeviceMap = Annotated[str | None, typer.Option(help="auto spreads the model over all devices.", show_default=False)]

LOADING = ("device", "dtype", "revision", "family", "quantization", "device_map")

# --- the decoding; `DECODING` are the fields of `DecodeConfig`
BlockLength = Annotated[int | None, typer.Option(help="Positions of a block.", show_default="the model's own, or 32")]
Strategy = Annotated[
    str | None,
    typer.Option(help="random, confidence, entropy, margin or left_to_right.", show_default="confidence"),
]
Temperature = Annotated[float | None, typer.Option(help="0 takes the most likely token.", show_default="1.0")]
TopK = Annotated[int | None, typer.Option(help="Sample among the k most likely tokens.")]
TopP = Annotated[float | None, typer.Option(help="Sample among the tokens holding this probability.")]
Lookahead = Annotated[
    int | None,
    typer.Option(help="Candidates a step tries one step ahead; costs as many forwards.", show_default="1"),
]
LookaheadScope = Annotated[
    str | None, typer.Option(help="block or canvas: the matches that lookahead counts.", show_default="block")
]
LookaheadProposals = Annotated[
    str | None, typer.Option(help="redrawn or kept: the winner's draws, when sampling.", show_default="redrawn")
]
Commit = Annotated[
    str | None, typer.Option(help="quota, threshold or factor: how many tokens a step.", show_default="quota")
]
Threshold = Annotated[
    float | None, typer.Option(help="Confidence above which commit threshold takes all.", show_default="0.9")
]
Factor = Annotated[float | None, typer.Option(help="Of commit factor.", show_default="1.0")]
Steps = Annotated[
    int | None, typer.Option(help="Forwards of a response, for commit quota.", show_default="one a token")
]
Schedule = Annotated[str | None, typer.Option(help="llada or dream: how tokens fall to steps.", show_default="llada")]
Cache = Annotated[
    str | None,
    typer.Option(
        help="none, prefix or dual (approximations for most models).", show_default="the model's own, or none"
    ),
]
Guard = Annotated[
    float | None, typer.Option(help="Prefer a match only at this share of the best reward.", show_default="0")
]
RepetitionGuard = Annotated[bool | None, typer.Option(help="Prefer no match that prolongs a loop.", show_default="off")]

DECODING = (
    "length",
    "block_length",
    "strategy",
    "temperature",
    "top_k",
    "top_p",
    "lookahead",
    "lookahead_scope",
    "lookahead_proposals",
    "commit",
    "threshold",
    "factor",
    "steps",
    "schedule",
    "cache",
    "guard",
    "repetition_guard",
)

# --- the run
BatchSize = Annotated[int, typer.Option(min=1, help="Most rows decoded at once.")]
Pad = Annotated[
    bool | None, typer.Option(help="Decode prompts of different lengths together.", show_default="on accelerators")
]
OneObject = Annotated[bool, typer.Option("--json", help="One JSON object.")]
RowsOut = Annotated[
    Path | None, typer.Option(help="Append rows to this file; finished rows are not made again.", show_default=False)
]


def given(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Of a command's options, those of `names` that it has and that the command line sets."""
    return {name: options[name] for name in names if options.get(name) is not None}
