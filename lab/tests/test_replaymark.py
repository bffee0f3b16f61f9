"""ReplayMark against its definition: readings by hand, repeated draws one by one, and the law of its count."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from dgmark import Detector, generate, stream_generate
from dgmark.decode import RowFinished, Step, Window
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.decode.replaymark import repeated
from dgmark_lab.baselines.prf import HashKey, states, uniform_bits
from dgmark_lab.baselines.published import PublishedFigures
from dgmark_lab.baselines.replaymark import Readings, left_out, lend, replay
from dgmark_lab.baselines.specs import ReplayMarkSpec
from dgmark_lab.experiments.cells import CellRows
from dgmark_lab.experiments.spec import Cell
from dgmark_lab.rule_keys import rule_key
from support.known_keys import bound_key, figures_of

TOY = ToyDenoiser(words=40, padding=4, spread=6.0, end_bias=-60.0, forbidden_bias=-60.0, end_ids=())
KEY = bound_key("replay", TOY)
SETTINGS: dict[str, Any] = {"length": 24, "block_length": 8, "temperature": 0.9}
OPTIONS: dict[str, Any] = {"text_length": 24, "block": 8, "draw_temperature": 0.9}
PROMPT = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10"


@pytest.fixture(autouse=True)
def reader() -> None:
    lend(TOY)


def key_of(number: int = 0, **options: Any) -> WatermarkKey:
    secret = replace(KEY, secret=np.random.default_rng(number).bytes(32))
    return rule_key("replaymark", secret, **{**OPTIONS, **options})


def spec_of(**options: Any) -> ReplayMarkSpec:
    spec = key_of(**options).spec
    assert isinstance(spec, ReplayMarkSpec)
    return spec


def coin(key: WatermarkKey, use: str, place: int) -> bool:
    state = states(HashKey.of(key, f"replaymark/{use}"), np.zeros(1, dtype=np.int64))
    return bool(uniform_bits(state, np.array([place]))[0] % 2)


def test_readings_are_those_of_the_definition() -> None:
    """Each place by itself: the pair of readings that splits the likely tokens best, and the sign of each token."""
    key, prompt, text = key_of(3), [5, 6, 7, 8, 9, 10, 11, 12, 13, 14], list(range(20, 28))
    before = [*prompt, *text]
    choices = left_out(key, len(before), 8)
    assert choices[0].tolist() == [14, 15, 16, 17]
    assert choices[1].tolist() == [0, 1, 2, 3]
    assert all(len(set(places.tolist())) == 4 for places in choices)
    assert len({tuple(places.tolist()) for places in choices}) == 8

    def read(masked: list[int]) -> torch.Tensor:
        ids = [TOY.mask_id if place in masked else token for place, token in enumerate(before)]
        return torch.log_softmax(TOY(torch.tensor([ids + [TOY.mask_id] * 16]))[0, 18:26].double(), -1)

    logs, whole = [read(places.tolist()) for places in choices], read([])
    found = Readings.of(key, before, 8)
    for place in range(8):
        shares = torch.softmax(whole[place] / 0.9, -1)
        splits = {
            (one, other): 2 * min(float(shares[difference > 0].sum()), float(shares[difference < 0].sum()))
            for one, other in combinations(range(8), 2)
            for difference in [logs[other][place] - logs[one][place]]
        }
        one, other = max(splits, key=lambda pair: splits[pair])
        assert found.carriers[place] == (splits[one, other] > 0.5)
        difference = logs[other][place] - logs[one][place]
        wanted = [
            coin(key, "tie", 8 + place) if value == 0 else (value > 0) == coin(key, "sign", 8 + place)
            for value in difference.tolist()
        ]
        assert found.wanted[place].tolist() == wanted


def test_without_anything_before_a_block_there_are_no_carriers() -> None:
    readings = Readings.of(key_of(), [], 0)
    assert not readings.carriers.any()
    assert replay(key_of(), [], [5, 6, 7], 0.01).scored == 0


def step_of(logits: torch.Tensor, temperature: float) -> Step:
    ids = torch.zeros((1, len(logits)), dtype=torch.long)
    window = Window(ids, 0, torch.arange(len(logits))[None], (0, len(logits)), 0, torch.zeros(1, dtype=torch.long))
    masked = torch.ones_like(ids, dtype=torch.bool)
    return Step(window, logits[None], masked, torch.tensor([0]), temperature)


@pytest.mark.parametrize(("draws", "least"), [(1, 0.0), (3, 0.3), (16, 0.05)])
def test_one_draw_has_the_law_of_repeated_draws(draws: int, least: float) -> None:
    """Draws one by one, as published. A correct law fails with chance below 1e-7."""
    logits = torch.tensor([[9.0, 2.0, 1.0, 0.5, 0.0, -1.0]])
    wanted = torch.tensor([[True, False, False, True, True, True]])
    spec, dice = spec_of(draws=draws, least_likely=least), np.random.default_rng(5)
    shares = torch.softmax(logits[0, 1:].double() / 0.7, -1).numpy()
    fit = wanted[0, 1:].numpy() & (shares >= least * shares.max())
    counts = np.zeros(5)
    for drawn in dice.choice(5, (40_000, draws + 1), p=shares):
        found = np.flatnonzero(fit[drawn[:draws]])
        counts[drawn[found[0]] if len(found) else drawn[draws]] += 1
    law = torch.softmax(repeated(logits, wanted, spec, step_of(logits, 0.7))[0].double() / 0.7, -1).numpy()
    assert law[0] == 0
    assert stats.chisquare(counts, 40_000 * law[1:] / law[1:].sum()).pvalue > 1e-7


def test_marked_text_is_found_behind_its_prompt_and_no_other() -> None:
    prompts = [f"{PROMPT} w{number}" for number in range(12)]
    key, other = key_of(), key_of(1)
    made = generate(TOY, prompts, key=key, seed=3, **SETTINGS)
    own, foreign, unmarked, without = ([] for _ in range(4))
    plain = generate(TOY, prompts, key=None, seed=3, **SETTINGS)
    for prompt, text, none in zip(prompts, made, plain, strict=True):
        ids = TOY.tokenizer.encode(prompt)
        own.append(replay(key, ids, text.token_ids, 0.01).p_value)
        foreign.append(replay(other, ids, text.token_ids, 0.01).p_value)
        unmarked.append(replay(key, ids, none.token_ids, 0.01).p_value)
        without.append(replay(key, ids[:-1], text.token_ids, 0.01).p_value)
    assert np.median(own) < 1e-4
    for one in (foreign, unmarked, without):
        assert np.median(one) > 0.01


def test_the_count_is_binomial_over_keys() -> None:
    """Fails with chance 1e-7 if it is."""
    text = generate(TOY, PROMPT, key=None, seed=1, **SETTINGS)[0].token_ids
    scores = [replay(key_of(number), TOY.tokenizer.encode(PROMPT), text, 0.01) for number in range(120)]
    for level in (0.1, 0.3):
        expected = sum(
            max(tail for k in range(one.scored + 2) if (tail := sf(k, one.scored)) <= level) for one in scores
        )
        hits = sum(one.p_value <= level for one in scores)
        assert stats.poisson.sf(hits - 1, expected) > 5e-8


def sf(matched: int, scored: int) -> float:
    return float(stats.binom.sf(matched - 1, scored, 0.5))


def test_rows_are_the_same_alone_padded_together_and_streamed() -> None:
    prompts = ["w1 w2 w3 w4 w5", PROMPT, "w6 w7"]
    together = generate(TOY, prompts, key=key_of(), seed=3, **SETTINGS)
    for index, prompt in enumerate(prompts):
        assert generate(TOY, prompt, key=key_of(), seed=3 + index, **SETTINGS) == [together[index]]
    events = stream_generate(TOY, prompts, key=key_of(), seed=3, **SETTINGS)
    assert [event.generation for event in events if isinstance(event, RowFinished)] == together


def test_a_detector_reads_the_text_without_a_prompt() -> None:
    ids = generate(TOY, PROMPT, key=key_of(), seed=3, **SETTINGS)[0].token_ids
    found = Detector(key_of(), tokenizer=TOY.tokenizer).detect(ids)
    assert found.p_value == replay(key_of(), [], ids, 0.01).p_value
    assert figures_of(found, PublishedFigures).p_published == found.p_value


def test_a_cell_is_scored_behind_its_prompts() -> None:
    cell = Cell(name="replay", key={"rule": "replaymark", **OPTIONS})
    ids = generate(TOY, PROMPT, key=key_of(), seed=3, **SETTINGS)[0].token_ids
    row = {"prompt": PROMPT, "chat": False, "seed": 0, "text": TOY.tokenizer.decode(ids), "token_ids": ids}
    rows = CellRows(cell, 1, rows=[row], keys=[key_of()], tokenizer=TOY.tokenizer)
    expected = replay(key_of(), TOY.tokenizer.encode(PROMPT), ids, 1e-4)
    for texts in ([row["text"]], [ids]):
        assert rows.score(texts).p.tolist() == [expected.p_value]
    assert rows.scores.tokens.tolist() == [expected.scored]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature 0 leaves no draw to repeat: use one above 0"),
        ({"length": 32}, "length 32 is above 24, the longest text of this key"),
        ({"block_length": 4}, "block_length 4 is not 8, for which this key was made"),
    ],
)
def test_unsuitable_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        generate(TOY, PROMPT, key=key_of(), **{**SETTINGS, **settings})
