"""The search for settings: halving against frontiers known in closed form, trials on the toy model, resuming."""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgmark.decode.config import DecodeConfig, Settings
from dgmark.errors import PromptTooLong, ResumeMismatch, SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.spec import Rule
from dgmark_lab.evaluate.judge import load_judge
from dgmark_lab.halving import Standing, halve, ranking, rungs, standing, survivors
from dgmark_lab.trials import Candidate, Trials, candidates_of
from support.tiny_language_models import write_causal

RATE = 1e-4
USUAL, MARKED = candidates_of(DecodeConfig(), None), candidates_of(DecodeConfig(), "bigram")


def good(**changes: float) -> Standing:
    return replace(Standing(16, 1.0, 1.0, 0.2, 1.0, 0.65, 0.01, 0.01), **changes)  # type: ignore[arg-type]


def test_the_goal_is_diversity_and_at_most_five_percent_of_perplexity() -> None:
    assert good().meets_goal
    assert good(perplexity=1.05).meets_goal
    assert not good(perplexity=1.051).meets_goal
    assert not good(diversity=0.999).meets_goal
    assert good(diversity=0.9, perplexity=2.1).miss() == pytest.approx(0.1 + math.log(2))
    assert good(diversity=0.97, perplexity=1.05).miss(errors=2) == pytest.approx(0.01)


def test_candidates_that_meet_the_goal_are_ranked_by_evidence_and_then_by_perplexity() -> None:
    several = [good(bits=0.1), good(diversity=0.9, bits=0.9), good(bits=0.3), good(diversity=0.95, bits=0.0)]
    assert ranking(several) == [2, 0, 3, 1]
    assert ranking([good(bits=0.0), good(bits=0.0, perplexity=0.8), good(bits=0.0, diversity=0.9)]) == [1, 0, 2]


def test_a_candidate_that_misses_by_chance_only_goes_on() -> None:
    clear, lucky, hopeless = good(bits=0.1), good(diversity=0.985, bits=0.9), good(diversity=0.5, bits=0.9)
    assert survivors([hopeless, clear, lucky], 2) == [1, 2]


@pytest.mark.parametrize(("candidates", "prompts"), [(48, 32), (48, 33), (3, 64), (1, 8), (100, 4), (7, 100)])
def test_each_round_has_half_the_candidates_and_twice_the_prompts(candidates: int, prompts: int) -> None:
    plan = rungs(candidates, prompts)
    assert plan[0][0] == candidates
    assert plan[-1][1] == prompts
    for (many, few), (half, double) in pairwise(plan):
        assert half in (math.ceil(many / 2), math.ceil(candidates / 2 ** plan.index((half, double))))
        assert double in (2 * few, 2 * few - 1)
        assert few >= 4


def closed_form(one: Candidate) -> tuple[float, float, float]:
    """Diversity, log perplexity and bits of a candidate; the user's own text at T = 1 has .6, ln 15 and none.

    Both rise with T, and fall with top-p. Fixed noise adds diversity at T = .7, where text is 1.3 times less perplexing
    than the user's own and as diverse. Only alpha = 1 at T = .6 is then as good; pairs at distances 1 to 4 show most.
    """
    settings: Settings = dict(one.settings)
    alpha, fixed, cut = settings.get("alpha", 0.0), settings.get("noise") == "fixed", settings["top_p"] is not None
    diversity = 0.6 + 0.5 * (settings["temperature"] - 1) + 0.17 * fixed + 0.22 * alpha - 0.1 * cut
    log_perplexity = math.log(15) + 1.2 * (settings["temperature"] - 1) + 0.1 * fixed + 0.2 * alpha - 0.15 * cut
    return diversity, log_perplexity, alpha * {None: 0.0, 1: 0.2, 4: 0.3, 8: 0.25}[one.farthest]


def trial_rows(one: Candidate, prompts: int, noise: float) -> list[dict[str, float]]:
    """Texts that scatter around the closed form; what a prompt adds is the same for all candidates."""
    diversity, log_perplexity, bits = closed_form(one)
    shared = np.random.default_rng(1).normal(size=(prompts, 2))
    own = np.random.default_rng(zlib.crc32(one.name.encode())).normal(size=(prompts, 3)) * noise
    return [
        {
            "distinct_2": diversity + 0.05 * both[0] + 0.02 * each[0],
            "nats": 100 * (log_perplexity + 0.2 * both[1] + 0.1 * each[1]),
            "judge_tokens": 100,
            "match": 0.65,
            "p_value": 2 ** (-100 * bits * (1 + 0.2 * each[2])),
            "tokens": 100,
        }
        for both, each in zip(shared, own, strict=True)
    ]


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_halving_finds_the_best_of_a_frontier_known_in_closed_form(noise: float) -> None:
    made: dict[Candidate, int] = {}

    def against(reference: Candidate) -> Callable[[Sequence[Candidate], int], list[Standing]]:
        def measure(some: Sequence[Candidate], prompts: int) -> list[Standing]:
            made.update(dict.fromkeys(some, prompts))
            own, base = (trial_rows(one, 64, noise)[:prompts] for one in (USUAL[0], reference))
            return [standing(trial_rows(one, 64, noise)[:prompts], own, base, RATE) for one in some]

        return measure

    reference = halve(USUAL, 64, against(USUAL[0]))[0][0]
    assert reference.name == "unmarked, T 0.7, noise fixed"
    best, its = halve(MARKED, 64, against(reference))[0]
    assert best.name == "bigram 1-4, T 0.6, alpha 1.0"
    assert its.meets_goal
    assert its.texts == 64
    assert sum(made.values()) < 0.35 * 64 * len(USUAL + MARKED)  # a full grid makes 64 texts of each


def test_standing_against_direct_sums() -> None:
    texts, own, base = (trial_rows(one, 9, 1.0) for one in (MARKED[5], USUAL[0], USUAL[1]))
    found = standing(texts, own, base, RATE)
    perplexities = [
        math.exp(sum(r["nats"] for r in rows) / sum(r["judge_tokens"] for r in rows)) for rows in (texts, base)
    ]
    assert found.perplexity == pytest.approx(perplexities[0] / perplexities[1])
    assert found.diversity == pytest.approx(sum(r["distinct_2"] for r in texts) / sum(r["distinct_2"] for r in own))
    assert found.bits == pytest.approx(sum(-math.log2(r["p_value"]) / 100 for r in texts) / 9)
    assert found.found == sum(r["p_value"] <= RATE for r in texts) / 9


def test_the_standard_errors_are_the_spread_over_other_prompts() -> None:
    texts, own, base = (trial_rows(one, 4000, 1.0) for one in (MARKED[5], USUAL[0], USUAL[1]))
    slices = [slice(i, i + 20) for i in range(0, 4000, 20)]
    parts = [standing(texts[part], own[part], base[part], RATE) for part in slices]
    # 200 draws: the sample deviation lies within 30 % of the true one, but for a chance below 1e-8 (chi-square)
    assert np.std([p.diversity for p in parts]) == pytest.approx(np.mean([p.diversity_error for p in parts]), rel=0.3)
    assert np.std([math.log(p.perplexity) for p in parts]) == pytest.approx(
        np.mean([p.log_perplexity_error for p in parts]), rel=0.3
    )


def test_candidates_are_all_combinations_that_the_strategy_can_have() -> None:
    user = DecodeConfig(temperature=0.8, top_p=0.95, noise="fixed")
    every = candidates_of(user, "bigram", alpha=[0.7])
    assert len({one.name for one in every}) == 6 * 2 * 3
    assert {dict(one.settings)["temperature"] for one in every} == {0.8, 1.04, 0.68, 0.56, 0.48, 0.4}
    assert {dict(one.settings)["top_p"] for one in every} == {0.95, None}
    assert {(dict(one.settings)["alpha"], one.farthest) for one in every} == {(0.7, 1), (0.7, 4), (0.7, 8)}
    looking = candidates_of(DecodeConfig(strategy="random"), "position")
    assert {(one["min_relative_reward"], one["lookahead"]) for one in (dict(each.settings) for each in looking)} == {
        (0.0, 1)
    }
    with pytest.raises(SettingsError, match="quality, so min_relative_reward has nothing to compare"):
        candidates_of(DecodeConfig(strategy="random"), "position", min_relative_reward=[0.1])
    with pytest.raises(SettingsError, match="min_relative_reward means nothing under rule bigram"):
        candidates_of(user, "bigram", min_relative_reward=[0.1])
    with pytest.raises(SettingsError, match="no diversity to compare"):
        candidates_of(DecodeConfig(temperature=0.0), "bigram")


@pytest.fixture
def toy_trials(tmp_path: Path) -> Trials:
    judge = load_judge(str(write_causal(tmp_path / "judge", chat=False)), dtype="fp32")
    prompts = [f"w{i} w{i + 1}" for i in range(6)]
    settings: Settings = {"block_length": 8, "temperature": 2.0}
    model = ToyDenoiser(words=40, end_ids=())
    return Trials(model, judge, settings, prompts, 20, RATE, tmp_path / "trials.jsonl", batch_size=4)


def candidate(rule: Rule | None, farthest: int | None = None, **settings: Any) -> Candidate:
    return Candidate(rule, farthest, tuple(settings.items()))


SOME = [candidate("position", temperature=2.0), candidate("bigram", 8, temperature=1.0, alpha=1.0)]
FIXED = candidate(None, temperature=2.0, noise="fixed")


def test_the_first_sampler_is_the_users_own(toy_trials: Trials) -> None:
    own, *others = replace(toy_trials, settings={**toy_trials.settings, "noise": "fixed"}).samplers
    assert dict(own.settings) == {"temperature": 2.0, "top_p": None, "noise": "fixed"}
    assert len(set(others)) == 6 * 2 * 2 - 1


def test_trials_are_decoded_and_measured_once(toy_trials: Trials) -> None:
    assert toy_trials.config.length == 24  # the whole blocks that hold 20 tokens
    told: list[tuple[int, int]] = []
    first = toy_trials.standings(SOME, FIXED, 4, lambda done, total: told.append((done, total)))
    lines = toy_trials.rows.read_bytes()
    assert len(lines.splitlines()) == 4 * 4  # the user's own text and the reference too
    assert told[0] == (0, 16)
    assert told[-1] == (16, 16)
    again = toy_trials.standings(SOME, FIXED, 4, lambda done, total: told.append((done, total)))
    assert again == first
    assert toy_trials.rows.read_bytes() == lines
    more = toy_trials.standings(SOME[1:], FIXED, 6, lambda _done, _total: None)
    assert len(toy_trials.rows.read_bytes().splitlines()) == 16 + 3 * 2
    assert more[0].texts == 6
    # 20 tokens that all match 20 fair coins or nearly so: a bit a token, less what the detector pays for 16 phases
    assert 0.1 < first[0].bits <= 1


def test_an_interrupted_search_goes_on_with_the_same_texts(toy_trials: Trials) -> None:
    whole = toy_trials.standings(SOME, FIXED, 6, lambda _done, _total: None)
    lines = toy_trials.rows.read_bytes()
    toy_trials.rows.write_bytes(lines[: len(lines) * 2 // 3])
    assert toy_trials.standings(SOME, FIXED, 6, lambda _done, _total: None) == whole
    assert sorted(toy_trials.rows.read_bytes().splitlines()) == sorted(lines.splitlines())


def test_trials_of_another_search_are_refused(toy_trials: Trials) -> None:
    toy_trials.standings(SOME, FIXED, 4, lambda _done, _total: None)
    with pytest.raises(ResumeMismatch, match="differs in measured_tokens"):
        replace(toy_trials, tokens=18).standings(SOME, FIXED, 4, lambda _done, _total: None)
    with pytest.raises(ResumeMismatch, match="different prompt"):
        replace(toy_trials, prompts=["w9"] * 6).standings(SOME, FIXED, 4, lambda _done, _total: None)


def test_a_prompt_that_is_too_long_is_found_before_the_search(toy_trials: Trials) -> None:
    with pytest.raises(PromptTooLong):
        replace(toy_trials, prompts=["w1", "w2 " * 600]).check()
