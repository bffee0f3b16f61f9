"""Choices and checks: how many tokens a key could decide, and what a checker will find in a text."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgmark
from dgmark.decode import RowFinished
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from support.command_line import rows, run
from support.known_keys import bound_key, key_file_of, known_key
from support.word_model import WordModel, text_of

TOY = ToyDenoiser(words=200, end_ids=(), context_length=600)
SETTINGS: dict[str, Any] = {"length": 64, "block_length": 16}
KEYS = {rule: bound_key("check", TOY, rule=rule) for rule in ("bigram", "position")}
MANY = bound_key("check", TOY, subkeys=16)

# settings that leave no draw a choice, whatever they are called
SURE: list[dict[str, Any]] = [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}, {"top_k": 50, "top_p": 1e-6}]


def written(key: dgmark.WatermarkKey | None, **settings: Any) -> dgmark.Generation:
    made: dgmark.Generation = dgmark.generate(TOY, "w1 w2", key=key, seed=3, **{**SETTINGS, **settings})[0]
    return made


@pytest.mark.parametrize("settings", SURE, ids=str)
def test_no_token_has_a_choice_where_settings_leave_none(settings: dict[str, Any]) -> None:
    assert written(None, **settings).choices == 0
    with pytest.warns(dgmark.MarkWarning, match=r"^no token had a choice, so what was written .* no mark: .*top_k"):
        made = written(KEYS["bigram"], **settings)
    assert made.choices == 0
    assert made.text == written(None, **settings).text


def test_greedy_text_has_choices_where_a_bias_can_decide() -> None:
    assert written(None, temperature=0).choices == 0
    assert written(KEYS["bigram"], temperature=0, bias=2.0).choices > 50


@pytest.mark.parametrize("settings", [{"temperature": 0, "bias": 2.0}, {"top_k": 20}], ids=str)
@pytest.mark.parametrize("rule", KEYS)
def test_the_choices_of_a_row_do_not_depend_on_the_rows_beside_it(rule: str, settings: dict[str, Any]) -> None:
    keys, prompts = [KEYS[rule], None, bound_key("another", TOY, rule=rule), None], ["w1", "w2", "w3", "w4"]
    given: dict[str, Any] = {"seed": [1, 2, 3, 4], **SETTINGS, **settings}
    together = dgmark.generate(TOY, prompts, key=keys, **given)
    for row, made in enumerate(together):
        one: dict[str, Any] = {**given, "seed": [row + 1]}
        (alone,) = dgmark.generate(TOY, prompts[row : row + 1], key=keys[row : row + 1], **one)
        assert made.trace == alone.trace
        assert made.choices > 50 or "temperature" in settings


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 20}, {"top_p": 0.9, "noise": "fixed"}], ids=str)
@pytest.mark.parametrize("key", [None, KEYS["bigram"], KEYS["position"], MANY])
def test_sampled_tokens_have_choices(key: dgmark.WatermarkKey | None, settings: dict[str, Any]) -> None:
    made = written(key, **settings)
    assert 50 < made.choices <= 64
    assert made.choices == sum(made.trace.had_choice)
    assert made.to_row("0")["choices"] == made.choices


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 1}], ids=str)
def test_an_order_has_a_choice_up_to_the_last_token_of_a_block(settings: dict[str, Any]) -> None:
    made = written(KEYS["position"], **settings)
    assert made.choices == 64 - 64 // 16
    last = [place for place, choice in zip(made.trace.position, made.trace.had_choice, strict=True) if not choice]
    assert [place // 16 for place in last] == list(range(4))
    with pytest.warns(dgmark.MarkWarning, match="no token had a choice"):
        assert written(KEYS["position"], block_length=1, **settings).choices == 0


def test_the_last_edit_of_a_place_counts_and_what_stands_behind_an_end_does_not() -> None:
    model = ToyDenoiser(end_bias=2.0)
    key = bound_key("edits", model)
    ended = 0
    for seed in range(30):
        (made,) = dgmark.generate(model, "w1", key=key, seed=seed, length=24, block_length=8, edit_threshold=0.1)
        last = dict(zip(made.trace.position, made.trace.had_choice, strict=True))
        assert made.choices == sum(last[place] for place in range(len(made.token_ids)))
        ended += made.ended
    assert ended > 5


# ---- checks


def as_found(key: dgmark.WatermarkKey, text: str, **options: Any) -> tuple[str, float, float]:
    found = dgmark.Detector(key, tokenizer=TOY.tokenizer).detect(text, **options)
    return found.verdict, found.p_value, found.fpr


def values(made: dgmark.Generation | dgmark.Infilling) -> tuple[str, float, float]:
    assert made.check is not None
    return made.check.verdict, made.check.p_value, made.check.fpr


@pytest.mark.cover(1)
@pytest.mark.parametrize("key", [*KEYS.values(), MANY, MANY.subkey(3)])
@pytest.mark.parametrize("settings", [{}, {"length": 16}, {"temperature": 0.3}], ids=str)
def test_a_check_is_what_a_checker_with_the_same_key_finds(key: dgmark.WatermarkKey, settings: dict[str, Any]) -> None:
    with warnings.catch_warnings(action="ignore", category=dgmark.MarkWarning):
        made = dgmark.generate(TOY, ["w1", "w2 w3", "w4"], key=key, check=True, **{**SETTINGS, **settings})
    whole = MANY if key.number is not None else key
    assert [values(one) for one in made] == [as_found(whole, one.text) for one in made]
    for one in made:
        assert one.to_row("0")["check"] == {"verdict": values(one)[0], "p_value": values(one)[1], "fpr": 1e-4}
    again = dgmark.generate(TOY, ["w1", "w2 w3"], key=key, subkey=None, length=16, block_length=16)
    assert all(one.check is None and "check" not in one.to_row("0") for one in again)


def test_a_stream_checks_its_rows_and_warns_after_the_last() -> None:
    with pytest.warns(dgmark.MarkWarning, match="2 of 2 texts will not be found") as caught:
        events = list(dgmark.stream_generate(TOY, ["w1", "w2"], key=KEYS["bigram"], check=True, top_k=1, **SETTINGS))
    assert len(caught) == 1
    made = [event.generation for event in events if isinstance(event, RowFinished)]
    assert [values(one) for one in made] == [as_found(KEYS["bigram"], one.text) for one in made]


def test_one_warning_says_which_share_of_a_run_will_not_be_found() -> None:
    short: dict[str, Any] = {"length": 8, "block_length": 8, "batch_size": 2}
    with pytest.warns(dgmark.MarkWarning) as caught:
        made = dgmark.generate(TOY, [f"w{n}" for n in range(1, 7)], key=KEYS["bigram"], check=True, **short)
    missed = sum(values(one)[0] != "watermarked" for one in made)
    assert missed
    (warning,) = caught
    assert str(warning.message).startswith(
        f"{missed} of 6 texts will not be found with this key at a false-positive ra"
    )
    assert "no token had a choice" not in str(warning.message)
    dgmark.generate(TOY, "w1", key=KEYS["bigram"], check=True, **SETTINGS)  # found: no warning


@pytest.mark.parametrize(
    "call",
    [
        lambda: dgmark.generate(TOY, "w1", key=None, check=True),
        lambda: dgmark.stream_generate(TOY, "w1", key=None, check=True),
        lambda: dgmark.infill(TOY, [["w1", 4]], key=None, check=True),
    ],
)
def test_a_text_without_a_mark_cannot_be_checked(call: Callable[[], object]) -> None:
    with pytest.raises(SettingsError, match="there is none: give a key, or leave check out"):
        call()


def test_holes_are_checked_alone_and_chosen_ones_with_the_text() -> None:
    key, given = KEYS["bigram"], " ".join(f"w{n}" for n in range(1, 150))
    (made,) = dgmark.infill(TOY, [[given, 120, given]], key=key, check=True, block_length=16)
    assert values(made) == as_found(key, made.text, only=made.spans)
    assert values(made)[0] == "watermarked"
    assert 100 < made.choices <= 120
    model = WordModel(words=700)
    key = bound_key("check", model, subkeys=1)
    with warnings.catch_warnings(action="ignore", category=dgmark.MarkWarning):
        (chosen,) = dgmark.infill(model, [text_of(60)], key=key, share=0.5, check=True)
    assert chosen.remasking is not None
    assert chosen.check is not None
    assert chosen.check.p_value == chosen.remasking.p_value
    assert 0 < chosen.choices <= sum(end - start for start, end in chosen.holes)


# ---- the commands


key_file = key_file_of(known_key("check", rule="bigram"))


def test_the_command_checks_its_rows_as_detect_does(key_file: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    prompts.write_text("".join(json.dumps({"id": str(n), "prompt": "The sea was"}) + "\n" for n in range(2)))
    short = ["--length", 32, "--block-length", 32, "--no-trace"]
    done = run("generate", "--key", key_file, "--prompts", prompts, "--out", out, "--check", *short, code=0)
    made = rows(out.read_text())
    found = rows(run("detect", "--key", key_file, "--format", "jsonl", out).stdout)
    assert [row["check"] for row in made] == [
        {name: row[name] for name in ("verdict", "p_value", "fpr")} for row in found
    ]
    missed = sum(row["check"]["verdict"] != "watermarked" for row in made)
    said = (
        f"warning: {missed} of 2 texts will not be found" if missed else "checked: all 2 texts are found with this key"
    )
    assert done.stderr.count(said) == 1


def test_the_commands_warn_once_where_no_token_had_a_choice(key_file: Path, tmp_path: Path) -> None:
    short = ["--length", 16, "--block-length", 16, "--top-k", 1]
    done = run("generate", "--key", key_file, "--prompt", "The sea was", *short)
    assert done.stderr.count("warning: no token had a choice, so what was written names a key and bears no mark") == 1
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"id": str(n), "text": "The sea was [mask:4] and"}) + "\n" for n in range(2)))
    done = run("infill", "--key", key_file, "--texts", texts, "--top-k", 1, "--check", "--json")
    assert done.stderr.count("warning: 2 of 2 texts will not be found") == 1
    assert [row["choices"] for row in rows(done.stdout)] == [0, 0]
    assert [row["check"]["verdict"] for row in rows(done.stdout)] == ["uncertain"] * 2
    for command in (["generate", "--prompt", "The sea was"], ["infill", "The sea [mask:3]"]):
        assert "a check looks for the mark of a key" in run(*command, "--no-watermark", "--check", code=2).stderr
