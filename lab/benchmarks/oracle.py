"""What a detector would find that knew the distribution of each draw: a limit of the weighted test.

    python lab/benchmarks/oracle.py FILE KEY MODEL [--surprisal-model narrator-base] [--texts 10]

FILE holds rows of `dgmark generate --json` that MODEL wrote, KEY is their key, which has sub-keys. The table has the
median digits of their p-values, -log10, under the sub-key of each text as the only key.

The order of a text's commits stands in its trace. So the model's forwards are made again in this order, and give the
distribution that each token was drawn from; no draw is made again. That it is the same decode is seen by the rewards in
the trace.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgmark import Detector, LanguageModel, WatermarkKey, load_model
from dgmark.decode.config import settings_of
from dgmark.decode.marks.rules import Places
from dgmark.decode.steps.proposals import KeyedWeights, Proposer, keyed_draw, keyed_shares, sampled_weights
from dgmark.decode.steps.selection import blocks_to_fill
from dgmark.decode.texts.prepared import Prepared
from dgmark.decode.texts.requests import requests_of
from dgmark.detection.statistics.match_null import MatchNull
from dgmark.models.denoiser import open_session, traits_of
from dgmark.models.loaded import LoadedModel
from dgmark.rows.jsonl import read_good_rows
from shared import arguments, print_header, print_row

# random keys by which the chance of a match is found, the unit of weights in nats, and the largest chance
KEYS, STEP, SUREST = 512, 0.05, 0.99
# of rewards, from batches of other sizes
_TOLERANCE = 1e-3


def main() -> None:
    """Measure, and print the table."""
    parser = arguments()
    parser.add_argument("file", type=Path)
    parser.add_argument("key", type=Path)
    parser.add_argument("model")
    parser.add_argument("--surprisal-model")
    parser.add_argument("--texts", type=int, default=10, help="the first so many texts")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    key = WatermarkKey.load(asked.key)
    rows = list(read_good_rows(str(asked.file)))[: asked.texts]
    readers: dict[str, Any] = {"the count": {}}
    if asked.surprisal_model is not None:
        readers[asked.surprisal_model] = {"surprisal_model": LanguageModel(asked.surprisal_model)}
    digits = {name: [digits_of(row, key, settings) for row in rows] for name, settings in readers.items()}
    model = load_model(asked.model, device="cpu", dtype=rows[0]["dtype"])
    for found in (oracle_digits(model, row, key) for row in rows):
        for test, one in found.items():
            digits.setdefault(test, []).append(one)
    print_header(["texts", *digits])
    print_row([len(rows), *(f"{np.median(found):.1f}" for found in digits.values())])


def digits_of(row: dict[str, Any], key: WatermarkKey, settings: dict[str, Any]) -> float:
    """Digits of the p-value of a text in the detector that people have, with its own sub-key as the only key."""
    return -math.log10(Detector(key.subkey(row["subkey"]), **settings).detect(row["text"]).p_value)


def oracle_digits(model: LoadedModel, row: dict[str, Any], key: WatermarkKey) -> dict[str, float]:
    """Digits of the p-value of a text, a row of `dgmark generate --json` by rule bigram, under its own sub-key alone.

    "best weights": the weighted test in which the weight of a pair is the logarithm of the odds that it matches, given
    the distribution of the draw that completed it, over random keys. "likelihood ratio": of all draws, by which each
    probability was multiplied under this key; over random keys its mean is 1 for each draw, so that 1 / ratio is a
    p-value, but for the few bits that several draws see. Both have half of the rate, as the whole text has in
    `Detector`.
    """
    ratio, weights, matches = 0.0, list[int](), list[bool]()
    dice = torch.Generator().manual_seed(0)
    for before, moved, drawn in _draws(model, row, key.subkey(row["subkey"])):
        at = (moved.tokens[0] == drawn).nonzero()
        if not len(at):  # too unlikely to have had bits
            continue
        number = int(at)
        gain = float(moved.gains[0, number])
        ratio += math.log10(gain) if gain else -math.inf  # this key would not have drawn it
        signs = moved.signs[0]
        for bit, chance in _chances(before, signs, number, dice):
            weights.append(round(math.log(chance / (1 - chance)) / STEP))
            matches.append(bool(signs[number, bit] > 0))
    total = int(np.array(weights) @ np.array(matches))
    tail = MatchNull.of_weights(np.maximum(weights, 0)).log_tail(total) / math.log(10)
    return {"best weights": -tail - math.log10(2), "likelihood ratio": ratio - math.log10(2)}


def _draws(model: LoadedModel, row: dict[str, Any], key: WatermarkKey) -> Iterator[tuple[Tensor, KeyedWeights, int]]:
    """For each commit: the probabilities of the candidates, what the key made of them, and the token."""
    requests = requests_of([row["prompt"]], key, row["seed"])
    prepared = Prepared.of(model, requests, settings_of(None, row["settings"]), chat=row["chat"])
    (batch,) = prepared.batches([0])
    canvas, config, trace = batch.canvas, prepared.config, row["trace"]
    proposer = Proposer(model, canvas, config, batch.side, [row["seed"]])
    session, ids, rows = open_session(model, config.cache), canvas.ids.clone(), torch.tensor([0])
    commits = list(zip(trace["position"], trace["token_id"], trace["reward"], strict=True))
    for low, high in blocks_to_fill(canvas, config.block_length, traits_of(model).block_origin):
        columns = canvas.start + low, canvas.start + high
        logits = session.begin(ids, *columns)
        for place, token, reward in commits[low:high]:
            here = logits[0, place - low].float()[None]
            confidence = float(here.softmax(-1)[0, token])
            if not low <= place < high or abs(confidence - reward) > _TOLERANCE:
                raise ValueError(f"{row['id']}: another decode: place {place}, reward {reward}, here {confidence}")
            shares = sampled_weights(here.index_fill(-1, proposer.forbidden, -torch.inf), config)
            places = Places(proposer.window(ids, rows, low, high - low), rows, torch.tensor([place - low]))
            draw = keyed_draw(batch.side, config, places, torch.tensor([True]), fixed_shapes=True)
            assert draw is not None
            moved = draw.apply(shares.clone(), shares.sum(-1))
            yield shares.gather(-1, moved.tokens)[0].double(), moved, token
            ids[0, canvas.start + place] = token
            logits = session.step(ids, rows, *columns)


def _chances(before: Tensor, signs: Tensor, drawn: int, dice: torch.Generator) -> Iterator[tuple[int, float]]:
    """The bits of a token that was drawn, and the chance of each to match, over random keys that it was drawn under."""
    flips = 2 * torch.randint(0, 2, (KEYS, *signs.shape), generator=dice, dtype=torch.int8) - 1
    flips *= signs != 0
    gains = keyed_shares(before.expand(KEYS, -1), flips, 1.0)[:, drawn] / before[drawn]
    for bit in signs[drawn].nonzero()[:, 0].tolist():
        chance = float(gains[flips[:, drawn, bit] > 0].sum() / gains.sum())
        yield bit, min(max(chance, 0.5), SUREST)


if __name__ == "__main__":
    main()
