"""The round-trip check against the slow oracle, which encodes whole texts; and the loop that obeys it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import dgmark
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.decode import DecodeConfig, NoMark, Prepared, Request, RoundTrip, decode
from dgmark.decode.steps.canvas import collect
from dgmark.decode.steps.round_trip import Surroundings
from dgmark.decode.steps.selection import order_of
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.cases import cases, data
from support.known_keys import bound_key
from support.plain_decoding import check_same, decode_slowly
from support.rules import rule_of_key
from support.word_model import byte_level_tokenizer

MASK = -1  # no tokenizer has this id


TOKENIZERS = ["storyteller", "narrator"]
tokenizer_of = cache(load_tokenizer)


def check_of(tokenizer: Tokenizer, ends: tuple[int, ...] = ()) -> RoundTrip:
    round_trip = RoundTrip.of(tokenizer, MASK, ends)
    assert round_trip is not None
    return round_trip


def whole_text_reads_back(tokenizer: Tokenizer, ids: list[int]) -> bool:
    return tokenizer.encode(tokenizer.decode(ids)) == ids


def fits(round_trip: RoundTrip, ids: Sequence[int], place: int, token: int) -> bool:
    """Whether a token fits into a whole text."""
    return round_trip.survives(Surroundings(list(ids), 0, cut_before=False, cut_after=False), place, token)


# ---- single checks ----


@pytest.mark.parametrize(("texts", "fitting"), cases(__file__, "neighbours"))
def test_two_neighbours_fit_if_their_text_is_cut_there(texts: list[str], fitting: bool) -> None:
    tokenizer = tokenizer_of("storyteller")
    first, second = (tokenizer.encode(text)[0] for text in texts)
    round_trip = check_of(tokenizer)
    for ids, place, token in (([first, MASK], 1, second), ([MASK, second], 0, first)):
        assert fits(round_trip, ids, place, token) == fitting == whole_text_reads_back(tokenizer, [first, second])
    assert fits(round_trip, [first, MASK, MASK], 2, second)  # a mask between them: nothing can be told


def test_white_space_before_a_mask_may_still_be_cut_by_what_follows() -> None:
    tokenizer = tokenizer_of("narrator")
    round_trip = check_of(tokenizer)
    (stop,), (line,), (word,), (spaced,) = (tokenizer.encode(text) for text in (".", "\n", "This", " This"))
    assert tokenizer.encode(".\n\nThis") == [stop, line, line, word]
    assert fits(round_trip, [stop, line, MASK, MASK], 2, line)  # a word without a space may follow
    assert fits(round_trip, [stop, line, line, MASK, MASK], 3, word)
    assert not fits(round_trip, [stop, line, line, MASK, MASK], 3, spaced)  # "\n\n" would be one token
    assert not fits(round_trip, [stop, line, line, MASK, MASK], 3, line)  # nothing can follow three of them
    assert not fits(round_trip, [stop, line, MASK], 2, line)  # nothing follows


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_character_of_several_tokens_is_judged_when_it_is_complete(name: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer.encode("😀")
    assert len(ids) > 2
    round_trip = check_of(tokenizer)
    blank = [MASK] * (len(ids) + 2)
    the = tokenizer.encode(" the")[0]
    assert fits(round_trip, blank, 1, ids[0])  # the rest may follow
    assert fits(round_trip, blank, 2, ids[1])
    assert not fits(round_trip, [MASK, ids[0], MASK], 2, the)  # it cannot follow any more
    assert not fits(round_trip, [MASK, MASK], 1, ids[0])  # the text ends here
    assert not fits(round_trip, [MASK, MASK], 0, ids[1])  # the text begins here
    for place in range(len(ids)):
        line = [the, *ids, the]
        line[1 + place] = MASK
        assert fits(round_trip, line, 1 + place, ids[place])
        assert not fits(round_trip, line, 1 + place, the)


def test_an_end_ends_the_text_and_other_special_tokens_do_not_read_back() -> None:
    tokenizer = tokenizer_of("storyteller")
    end, start, *_ = sorted(tokenizer.special_ids)
    (wind,), half = tokenizer.encode(" wind"), tokenizer.encode("😀")[0]
    round_trip = check_of(tokenizer, (end,))
    assert fits(round_trip, [wind, MASK], 1, end)
    assert fits(round_trip, [MASK, MASK], 1, end)
    assert not fits(round_trip, [half, MASK], 1, end)
    assert not fits(round_trip, [MASK, end], 0, half)
    assert fits(round_trip, [MASK, end, half], 0, wind)
    assert not fits(round_trip, [wind, MASK], 1, start)
    assert not fits(check_of(tokenizer), [wind, MASK], 1, end)  # where nothing ends the text


def test_tokenizers_of_other_kinds_have_no_check() -> None:
    assert RoundTrip.of(ToyDenoiser().tokenizer, 0) is None


# ---- whole texts, filled in any order ----

# dice of a drawn seed: hypothesis itself takes long to draw each throw
DICE = st.integers(0, 2**64 - 1).map(random.Random)

# Without combining marks and free text: beside a mask, a mark before a contraction can put a good candidate last.
PLAIN = st.text(st.sampled_from("abe tTs'nd,.\n\r\t1203é€😀👩💻日 n  "), max_size=40)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, derandomize=True)
@given(PLAIN, DICE)
@example("don't unreadable  \n\n 😀👩‍💻 12345 x", random.Random(3))
def test_a_text_that_reads_back_is_never_in_the_way_of_itself(name: str, text: str, rng: random.Random) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer.encode(text)
    if tokenizer.special_ids & {*ids} or not whole_text_reads_back(tokenizer, ids):
        return
    round_trip = check_of(tokenizer)
    line = [MASK] * len(ids)
    for place in rng.sample(range(len(ids)), len(ids)):
        assert fits(round_trip, line, place, ids[place]), (text, line, place)
        line[place] = ids[place]


@cache
def troublesome(name: str) -> list[int]:
    """Tokens that often do not fit together."""
    tokenizer = tokenizer_of(name)
    text = "the winds and world's don't s t ing ed 😀 é € 日本 \n\n   , .. '' \" 1 23 456 a b ab I'll we're th e"
    words = [text[i : i + n] for i in range(len(text)) for n in (1, 2, 3)]
    return sorted({i for word in words for i in tokenizer.encode(word)} - tokenizer.special_ids)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, derandomize=True)
@given(DICE, st.integers(1, 14))
def test_a_text_made_of_fitting_tokens_reads_back(name: str, rng: random.Random, length: int) -> None:
    tokenizer, tokens = tokenizer_of(name), troublesome(name)
    round_trip = check_of(tokenizer)
    line = [MASK] * length
    refused = 0
    for place in rng.sample(range(length), length):
        for token in rng.sample(tokens, len(tokens)):
            if fits(round_trip, line, place, token):
                line[place] = token
                break
            refused += 1
        else:
            return  # nothing fits here: the loop would commit something all the same
    assert whole_text_reads_back(tokenizer, line), tokenizer.decode(line)


# ---- the loop; a toy whose tokens rarely fit ----


@dataclass(frozen=True)
class Letters(ToyDenoiser):
    """A toy with a byte-level vocabulary of a few letters and merges, so that most neighbours do not fit."""

    padding: int = 3
    end_bias: float = -3.0

    @cached_property
    def tokenizer(self) -> Tokenizer:
        merges = [("a", "b"), ("Ġ", "a"), ("ab", "c"), ("Ġ", "c"), ("b", "a"), ("c", "c"), ("Ġa", "b"), ("d", "ab")]
        letters = [*"abcdĠ", *("".join(pair) for pair in merges)]
        return byte_level_tokenizer(letters, merges, self.name)

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size + self.padding

    @cached_property
    def _bias(self) -> Tensor:
        bias = torch.zeros(self.vocab_size, dtype=torch.float64)
        bias[[0, *range(self.tokenizer.vocab_size, self.vocab_size)]] = self.forbidden_bias
        bias[1] = self.end_bias
        return bias


MODEL = Letters()
PROMPTS = [[2, 7, 5], [9, 3, 3], [4, 4, 11], [6, 2, 8]]
LENGTH, BLOCK = 24, 8


def key_of(rule: str | None, model: ToyDenoiser = MODEL) -> WatermarkKey | None:
    return None if rule is None else bound_key("round trip", model, rule=rule)


WAYS: list[dict[str, Any]] = data(__file__, "ways")


def way_of(way: dict[str, Any], key: WatermarkKey | None) -> dict[str, Any]:
    """The settings of a way that have a meaning for this key."""
    if key is not None and key.spec.rule == "position":
        return way
    of_matches = {"min_relative_reward", "lookahead"}
    bias = {"bias": 1.0} if key is not None and way.get("temperature") == 0 else {}
    return {name: value for name, value in way.items() if name not in of_matches} | bias


def texts(way: dict[str, Any], key: WatermarkKey | None, **more: Any) -> list[dgmark.Generation]:
    prompts: list[str | list[int]] = [*PROMPTS]
    return dgmark.generate(MODEL, prompts, key=key, length=LENGTH, block_length=BLOCK, **way_of(way, key), **more)


@pytest.mark.cover(2)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("rule", [None, "position", "bigram"])
def test_every_text_reads_back_and_without_the_check_hardly_any(way: dict[str, Any], rule: str | None) -> None:
    def read_back(seed: int, *, on: bool) -> int:
        made = texts(way, key_of(rule), seed=seed, round_trip_check=on)
        return sum(MODEL.tokenizer.encode(one.text) == one.token_ids for one in made)

    assert [read_back(seed, on=True) for seed in (0, 4)] == [4, 4]
    assert read_back(0, on=False) < 2


@pytest.mark.cover(2)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("rule", ["position", "bigram"])
def test_a_row_is_the_same_alone_and_among_strangers(way: dict[str, Any], rule: str) -> None:
    key = key_of(rule)
    keys = [None, key, None, key]
    requests = [Request(prompt, 7 * row, key) for row, (prompt, key) in enumerate(zip(PROMPTS, keys, strict=True))]

    def responses(of: list[Request]) -> list[Any]:
        prepared = Prepared.of(MODEL, of, DecodeConfig(LENGTH, BLOCK, **way_of(way, key)))
        (batch,) = prepared.batches(range(len(of)))
        made = collect(MODEL, batch.canvas, prepared.steps(batch))
        return [(one.token_ids, one.trace.position, one.trace.reward) for one in made]  # steps count those of all rows

    together = responses(requests)
    assert together == [responses([request])[0] for request in requests]


@pytest.mark.parametrize("rule", ["position", "bigram"])
def test_a_filled_text_reads_back_whole(rule: str) -> None:
    parts: list[str | int] = ["ab c", 7, "b cab", 5, "c ab"]
    read = {}
    for on in (True, False):
        made = [
            dgmark.infill(MODEL, [parts], key=key_of(rule), seed=seed, block_length=4, round_trip_check=on)[0]
            for seed in range(20)
        ]
        read[on] = sum(MODEL.tokenizer.encode(one.text) == one.token_ids for one in made)
    assert read[True] == 20 > 10 > read[False]


# ---- the slow loop: one token a step ----


def fits_in(tokenizer: Tokenizer, line: list[int], place: int, token: int) -> bool:
    """Whether the whole run of committed tokens around a place reads back with a token in it (mask 0, end 1)."""
    low = high = place
    while low > 0 and line[low - 1] not in (0, 1):
        low -= 1
    while high + 1 < len(line) and line[high + 1] not in (0, 1):
        high += 1
    before, after = line[low:place], line[place + 1 : high + 1]
    if token == 1:  # the text stops before it
        return whole_text_reads_back(tokenizer, before)
    if not all(whole_text_reads_back(tokenizer, part) for part in (before, after)):
        # what is lost already is judged no farther than the check looks
        before, after = before[-4:], after[:4]
    return whole_text_reads_back(tokenizer, [*before, token, *after])


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {}], ids=str)
@pytest.mark.parametrize("rule", [None, "position", "bigram"])
def test_the_loop_is_the_slow_one(rule: str | None, settings: dict[str, Any]) -> None:
    """Which encodes the whole run around each candidate."""
    redraws = 0
    bias: dict[str, Any] = {"bias": 1.0} if rule == "bigram" and settings else {}
    config = DecodeConfig(LENGTH, BLOCK, **settings, **bias)
    for seed in range(6):
        model = replace(MODEL, seed=seed)
        key = key_of(rule, model)
        round_trip = RoundTrip.of(model.tokenizer, model.mask_id, model.end_ids)
        for prompt in PROMPTS[:2]:
            (made,) = decode(model, torch.tensor([prompt]), config, rule_of_key(key), [seed], round_trip=round_trip)
            slow = decode_slowly(model, prompt, config, key, seed, fits=partial(fits_in, model.tokenizer))
            check_same(made, slow, model.end_ids)
            redraws += slow.redraws
    assert redraws > 10  # there was something to draw again


@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"noise": "fixed"}, {"steps": 3}], ids=str)
def test_where_nothing_fits_something_permitted_is_committed_all_the_same(settings: dict[str, Any]) -> None:
    class Hopeless(RoundTrip):
        def _window_survives(self, *_: Any) -> bool:
            return False

    model = replace(MODEL, forbidden_bias=9.0)
    config = DecodeConfig(LENGTH, BLOCK, **settings)
    round_trip = Hopeless(model.tokenizer, model.mask_id)
    responses = decode(model, torch.tensor(PROMPTS), config, NoMark(), [0, 1, 2, 3], round_trip=round_trip)
    for response in responses:
        assert len({*response.trace.position}) == len(response.trace.position) > 0
        assert {*response.trace.token_id} <= {*range(1, model.tokenizer.vocab_size)}


# ---- which candidates of a step are looked at ----


@given(DICE)
@settings(max_examples=100, derandomize=True)
def test_the_candidates_of_a_step_are_judged_together(rng: random.Random) -> None:
    """Against the rule itself: go through the order; what fits beside those taken before is taken."""
    tokenizer = MODEL.tokenizer
    round_trip = RoundTrip.of(tokenizer, 0, ())
    assert round_trip is not None
    rows, block = 3, 6
    canvas = torch.tensor([[rng.choice([0, 0, *range(2, 15)]) for _ in range(4 + block + 3)] for _ in range(rows)])
    masked = canvas[:, 4 : 4 + block] == 0
    tokens = torch.tensor([[rng.randrange(2, 15) for _ in range(block)] for _ in range(rows)])
    rewards = torch.tensor([[rng.random() for _ in range(block)] for _ in range(rows)])
    order = order_of(rewards, masked, torch.ones_like(masked))
    quota, width = torch.tensor([rng.randint(1, 4) for _ in range(rows)]), torch.tensor([1, 2, 3])
    members = masked.sum(1)
    found, short = round_trip.unreadable(tokens, canvas, (4, 13), 4, order, members, quota, width)
    for row in range(rows):
        line, taken, expected = canvas[row, 4:].tolist(), 0, set()
        for place in order[row, : members[row]].tolist():
            if taken == quota[row] - 1 + width[row]:
                break
            token = int(tokens[row, place])
            if fits_in(tokenizer, line, place, token):
                taken += 1
                if taken < quota[row]:
                    line[place] = token
            else:
                expected.add(place)
        assert {*found[row].nonzero()[:, 0].tolist()} == expected
        assert bool(short[row]) == (taken < min(int(quota[row]), int(members[row])))
