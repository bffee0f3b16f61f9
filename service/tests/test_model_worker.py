"""The model worker's work, in this process: batches of strangers, turns, cancelled and failed jobs, sizes."""

import pickle
import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch

import dgmark
from dgmark.decode.texts.growing import readable_after
from dgmark.decode.texts.holes import holes_in
from dgmark.errors import DgmarkError
from dgmark.models.denoiser import Denoiser
from dgmark.models.toy import ToyDenoiser
from dgmark_service.jobs import Finished, FromWorker, Job, Marked, Started, Stepped
from dgmark_service.model_worker import ModelWorker
from support.known_keys import bound_key
from support.word_model import WordModel, text_of

TOY = ToyDenoiser(end_bias=0.4)
KEYS = {
    "plain": bound_key("plain", TOY),
    "many": bound_key("many", TOY, subkeys=16),
    "position": bound_key("position", TOY, rule="position"),
}
SHORT = {"block_length": 4, "temperature": 0.8}


class _Broken(ToyDenoiser):
    """A model that gives no logits."""

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.full((*ids.shape, self.vocab_size), torch.nan)


class _Raising(ToyDenoiser):
    """A model with a fault of its own."""

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(f"no memory for {ids.shape}")


def job(prompt: str | list[int] = "w1 w2", *, settings: dict[str, Any] = SHORT, **fields: Any) -> Job:
    given: dict[str, Any] = {
        "caller": "one",
        "model": "toy",
        "chat": False,
        "key": None,
        "seed": 3,
        "max_tokens": 12,
    } | fields
    if given["key"] is not None:
        given["key"] = KEYS[given["key"]].for_text(given.pop("subkey", None))
    return Job(id=given.pop("id", secrets.token_hex(4)), prompt=prompt, settings=settings, **given)


class Writer(ModelWorker):
    """A worker that has taken some jobs, and keeps what it said."""

    def __init__(self, *jobs: Job, rows: int = 16, batches: int = 4, **models: Denoiser) -> None:
        self.told: list[FromWorker] = []
        super().__init__({"toy": TOY, **models}, self.told.append, rows=rows, batches=batches)
        for one in jobs:
            self.take(one)

    def of(self, kind: type, one: Job | None = None) -> list[Any]:
        return [outcome for job, outcome in self.told if isinstance(outcome, kind) and (one is None or job == one.id)]

    def until(self, over: Callable[[], object]) -> "Writer":
        while not over():
            self.advance()
        return self


def done(*jobs: Job, **given: Any) -> Writer:
    """What comes of jobs that all wait when the worker begins."""
    writer = Writer(*jobs, **given)
    return writer.until(lambda: not writer.busy)


STRANGERS = [
    job("w1 w2", seed=1, key="plain"),
    job("w3 w4", seed=2),
    job("w5 w6", seed=1, key="many", subkey=3),
    job("w5 w6", seed=1, key="many", subkey=9),
    job("w7", seed=4, key="plain"),
    job("w1 w2", seed=1, key="plain", max_tokens=8),
]


@pytest.mark.parametrize(("rows", "batches"), [(16, 1), (16, 4), (2, 4), (1, 1)])
def test_a_text_in_a_batch_of_strangers_is_the_text_alone(rows: int, batches: int) -> None:
    told = done(*STRANGERS, rows=rows, batches=batches)
    for one in STRANGERS:
        settings: Any = {**SHORT, "length": one.max_tokens}
        prompt: Any = one.prompt
        (alone,) = dgmark.generate(TOY, [prompt], key=one.key, seed=one.seed, **settings)
        (finished,) = told.of(Finished, one)
        assert finished.text == alone.text
        assert finished.ended == alone.ended
        assert finished.tokens == len(alone.token_ids)
        steps = told.of(Stepped, one)
        assert [token for step in steps for token in step.tokens] == alone.trace.token_id
        assert [place for step in steps for place in step.positions] == alone.trace.position
        assert finished.steps == len(steps) == len(set(alone.trace.step))
        assert "".join(step.added for step in steps) == alone.text
        assert steps[-1].joined == len(alone.token_ids)


def test_text_that_may_still_be_edited_is_not_sent() -> None:
    settings: dict[str, Any] = {**SHORT, "edit_threshold": 0.1}
    asked = [job(f"w{n}", seed=n, key="plain", settings=settings, max_tokens=20) for n in range(4)]
    told, replaced = done(*asked), 0
    for one in asked:
        (alone,) = dgmark.generate(TOY, [one.prompt], key=KEYS["plain"], seed=one.seed, length=20, **settings)
        (finished,), steps = told.of(Finished, one), told.of(Stepped, one)
        assert (finished.text, finished.tokens) == (alone.text, len(alone.token_ids))
        assert [place for step in steps for place in step.positions] == alone.trace.position
        assert alone.text.startswith(sent := "".join(step.added for step in steps))
        assert len(sent.split()) == steps[-1].joined == max(alone.trace.position) // 4 * 4
        replaced += len(alone.trace.position) > len({*alone.trace.position})
    assert replaced == 4


def test_only_what_will_not_change_is_told() -> None:
    assert readable_after("one", "one caf\ufffd") == " caf"
    assert readable_after("one caf", "one café") == "é"
    assert readable_after("one", "other") == ""
    assert readable_after("one ", "one\ufffd") == ""


def test_like_jobs_share_their_forwards() -> None:
    class Counting(ToyDenoiser):
        calls = 0

        def __call__(self, ids: torch.Tensor) -> torch.Tensor:
            Counting.calls += 1
            return super().__call__(ids)

    keys = [None, "plain", None, "plain", None, "plain"]
    alike = [job(f"w{n} w{n}", seed=n, key=key, model="counting", settings=SHORT) for n, key in enumerate(keys)]
    done(*alike, counting=Counting(end_ids=()))
    assert Counting.calls == 12


def test_a_job_that_comes_later_does_not_wait_for_the_end() -> None:
    first, second = job(max_tokens=200), job(max_tokens=4)
    told = Writer(first)
    told.advance()
    told.take(second)
    told.until(lambda: told.of(Finished, second))
    assert not told.of(Finished, first)


def test_a_cancelled_job_frees_its_place_and_the_others_go_on() -> None:
    stays, leaves, waits, never = (job(seed=n, model="endless") for n in range(4))
    told = Writer(stays, leaves, waits, never, rows=2, endless=ToyDenoiser(end_ids=()))
    told.advance()
    told.advance()
    told.take(leaves.id)
    told.take(never.id)
    assert told.told.count((leaves.id, None)) == told.told.count((never.id, None)) == 1
    written = len(told.of(Stepped, leaves))
    told.until(lambda: not told.busy)
    assert len(told.of(Stepped, leaves)) <= written + 1
    assert [len(told.of(Finished, each)) for each in (stays, leaves, waits, never)] == [1, 0, 1, 0]
    model = ToyDenoiser(end_ids=())
    settings: Any = {**SHORT, "length": 12}
    assert told.of(Finished, stays)[0].text == dgmark.generate(model, "w1 w2", key=None, seed=0, **settings)[0].text


@pytest.mark.parametrize(("model", "known"), [(_Broken(), True), (_Raising(), False)])
def test_a_batch_that_fails_takes_no_other_with_it(model: Denoiser, known: bool) -> None:
    good, bad, worse = job(), job(model="bad"), job(model="bad", seed=9)
    told = done(bad, good, worse, bad=model)
    assert len(told.of(Finished, good)) == 1
    for one in (bad, worse):
        (error,) = told.of(DgmarkError, one)
        assert (type(error) is DgmarkError) != known
        assert not told.of(Finished, one)


ENFORCED = {"max_tokens": 8, "settings": {}, "key": "plain", "enforced": True}
HOLES = {"prompt": "w1 [mask:4] w2 [mask:3]", "fills": True, "max_tokens": None}


@pytest.mark.parametrize(
    ("asked", "wrong", "param"),
    [
        ({"prompt": ""}, "empty", "prompt"),
        ({"prompt": [99]}, "99", "prompt"),
        ({"settings": {"temperature": 0.0, "top_k": 3}}, "no meaning", None),
        ({"chat": True}, "chat template", None),
        ({"prompt": "w1 w2", "fills": True}, "no hole", "text"),
        ({"max_tokens": 600}, "ask for 510 at most", "max_tokens"),
        ({"max_tokens": None, "prompt": [4] * 600}, "more than 512", "prompt"),
        ({"prompt": "w1 [mask:600]", "fills": True}, "more than 512", "text"),
        ({"prompt": ["w1", 10**12], "fills": True}, "more than 512", "parts"),
        ({"key": "position", "settings": {"block_length": 1}}, "hardly any mark", "block_length"),
        ({"key": "plain", "settings": {"block_length": 4, "steps": 3}}, "hardly any mark", "num_denoising_steps"),
        ({**HOLES, "key": "position", "settings": {"block_length": 1}}, "hardly any mark", "block_length"),
        ({"key": "many", "subkey": 2, "settings": {"temperature": 0.0}}, "draws nothing", "temperature"),
        ({"key": "plain", "settings": {}, "own": {"temperature": 0.0}}, "draws nothing", ""),
        ({"key": "plain", "settings": {"temperature": 0.5, "alpha": 0.0}}, "makes draws plain", "alpha"),
        ({"key": "plain", "settings": {"temperature": 0.5, "lookahead": 2}}, "lookahead above 1", "lookahead"),
        ({"key": "plain", "settings": {"min_relative_reward": 0.5}}, "prefers some candidates", "min_relative_reward"),
        ({**ENFORCED, "max_tokens": 1}, "too few", "max_tokens"),
        ({**ENFORCED, "prompt": [4] * 505, "max_tokens": None}, "too few", "prompt"),
        ({**ENFORCED, **HOLES}, "too few", "text"),
        ({**ENFORCED, **HOLES, "prompt": ["w1", 1, "w2"]}, "too few", "parts"),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(asked: dict[str, Any], wrong: str, param: str | None) -> None:
    told = done(job(**asked))
    (error,) = told.of(DgmarkError)
    assert len(told.told) == 1
    assert wrong in str(error)
    assert "--" not in str(error)
    if param is not None:
        again = pickle.loads(pickle.dumps(error))
        code = "context_length_exceeded" if wrong in ("more than 512", "ask for 510 at most") else None
        assert (again.param or "", again.code, str(again)) == (param, code, str(error))


@pytest.mark.parametrize(
    ("asked", "own", "settings"),
    [
        ({"max_tokens": 100}, {}, {"length": 100, "block_length": 32}),
        ({"max_tokens": 7}, {}, {"length": 7, "block_length": 32}),
        ({"max_tokens": 30, "settings": {"block_length": 8}}, {}, {"length": 30, "block_length": 8}),
        ({"max_tokens": None}, {}, {"length": 256, "block_length": 32}),
        ({"max_tokens": None, "prompt": [4] * 300}, {}, {"length": 212, "block_length": 32}),
        ({"max_tokens": 12}, {"block_length": 16}, {"length": 12, "block_length": 16}),
        ({"max_tokens": 64}, {"steps": 128}, {"length": 64, "steps": 32}),
        ({"max_tokens": 12}, {"length": 64, "block_length": 16, "steps": 4}, {"length": 12, "steps": 2}),
        ({"settings": {"temperature": 0.0}}, {"top_p": 0.9, "top_k": 5}, {"top_p": None, "top_k": None}),
        ({"settings": {"commit": "threshold"}}, {"steps": 128}, {"steps": None, "commit": "threshold"}),
        (
            {"settings": {"strategy": "random"}},
            {"min_relative_reward": 0.5},
            {"strategy": "random", "min_relative_reward": 0.0},
        ),
        ({"settings": {"strategy": "margin", "temperature": 0.0}}, {"edit_threshold": 0.5}, {"edit_threshold": None}),
        ({"settings": {"temperature": 0.5}}, {"strategy": "margin", "temperature": 0.0}, {"strategy": "confidence"}),
        (HOLES, {"steps": 128, "length": 256, "temperature": 0.5}, {"steps": None, "temperature": 0.5}),
    ],
)
def test_whole_blocks_and_the_services_own_settings_give_way_to_a_request(
    asked: dict[str, Any], own: dict[str, Any], settings: dict[str, Any]
) -> None:
    bias = {"bias": 2.0}
    (started,) = Writer(job(**{"key": "plain", "settings": {}, **asked, "own": own | bias})).of(Started)
    assert {name: started.settings[name] for name in settings | bias} == settings | bias


def test_holes_are_filled_as_infill_fills_them() -> None:
    text = "w1 w2 [mask:6] w3 [mask:5] w4"
    jobs = [job(text, key=key, seed=n, fills=True, max_tokens=None) for n, key in enumerate(("plain", None))]
    jobs.append(replace(jobs[0], id="edited", settings={**SHORT, "edit_threshold": 0.1}))
    told = done(*jobs)
    for one in jobs:
        settings: Any = dict(one.settings)
        (alone,) = dgmark.infill(TOY, [holes_in(text)], key=one.key, seed=one.seed, **settings)
        (finished,) = told.of(Finished, one)
        assert (finished.text, finished.spans, finished.tokens) == (alone.text, alone.spans, 11)
        assert (finished.ended, finished.steps) == (False, len(set(alone.trace.step)))
        (started,) = told.of(Started, one)
        assert started.prompt_tokens == 4


def test_a_text_that_is_marked_takes_turns_and_stops_when_nobody_waits() -> None:
    model = WordModel(words=676)
    fields: dict[str, Any] = {"max_tokens": None, "fills": True, "remask": {"share": 0.5, "keep": None, "target": None}}
    long, written = job(text_of(80), **fields), job("W1 W2")
    told = Writer(long, rows=4, toy=model)
    told.advance()
    told.take(written)
    told.until(lambda: told.of(Marked, long) and told.of(Finished, written))
    assert told.of(Stepped, written)
    first = told.of(Marked, long)[0]
    tokens = len(model.tokenizer.encode(long.prompt))
    assert 0 < first.done < round(0.5 * tokens) < first.of <= round(1.5 * tokens)
    assert not told.of(Finished, long)
    told.take(long.id)
    told.advance()
    assert not told.busy
    told._speeds[(long.model, 0.5)] = 100.0  # seconds a token, as if the last text had taken so long
    told.take(slow := replace(long, id="slow"))
    assert "mark it in parts of up to" in str(told.of(DgmarkError, slow)[0])


@pytest.mark.parametrize("marks", [False, True])
def test_a_caller_has_every_second_step_beside_any_number_of_long_texts_of_another(marks: bool) -> None:
    model = WordModel(words=676)
    if marks:
        remask = {"share": 0.5, "keep": None, "target": None}
        long = [job(text_of(80), max_tokens=None, fills=True, remask=remask) for _ in range(6)]
    else:
        long = [job("W1 W2", max_tokens=80, settings={**SHORT, "top_k": 9 + number}) for number in range(6)]
    told = Writer(*long, rows=2, toy=model)
    told.clock = count().__next__  # each step takes as long as any other
    for _ in range(6):
        told.advance()
    short, before = job("W1 W2", caller="other", max_tokens=8), len(told.told)
    told.take(short)
    told.until(lambda: told.of(Finished, short))
    assert not any(told.of(Finished, one) for one in long)
    steps = len(told.of(Stepped, short))
    assert len(told.told) - before <= 2 * steps + 4


def test_a_share_of_a_text_is_masked_as_infill_does_it() -> None:
    model, text = WordModel(words=676), text_of(80)
    plain, many = bound_key("plain", model), bound_key("many", model, subkeys=16)
    chosen = {"share": 0.5, "keep": None, "target": None}
    fields: dict[str, Any] = {"max_tokens": None, "fills": True, "remask": chosen}
    marked = replace(job(text, **fields), key=many.for_text(3))
    asked = [marked, job(text, **fields), job("W1 W2", **fields)]
    short = replace(job("Start ab cd", enforced=True, **fields), key=plain)
    dropped = job(text, **fields)
    told = Writer(dropped, *asked, short, rows=2, toy=model)
    told.take(dropped.id)
    told.until(lambda: not told.busy)
    for one, key in zip(asked, (many, None), strict=False):
        subkey = None if key is None else 3
        settings: dict[str, Any] = SHORT
        (alone,) = dgmark.infill(model, [text], key=key, subkey=subkey, seed=one.seed, share=0.5, **settings)
        (finished,) = told.of(Finished, one)
        assert (finished.text, finished.spans) == (alone.text, alone.spans)
        assert alone.remasking is not None
        assert finished.figures["p_value"] == alone.remasking.p_value
        assert finished.figures["changed"] == alone.remasking.changed
    assert not told.of(Finished, dropped)
    assert "no word" in str(told.of(DgmarkError, asked[2])[0])
    assert "too few" in str(told.of(DgmarkError, short)[0])
