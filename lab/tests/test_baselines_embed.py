"""What the baselines do to logits, against obvious references: the gradient by autograd, green places by hand."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab_support import CASES
from scipy import stats
from torch import Tensor

from dgmark import Detector, Generation, generate, load_tokenizer, stream_generate
from dgmark.decode import DecodeConfig, NoMark, OneKeySide, RowFinished, Step, Window, decode, side_of_rows
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import PositionSpec
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.cdmark import spreading_vector
from dgmark_lab.baselines.decode.gumbel import gumbel_noise
from dgmark_lab.baselines.pattern_mark import first_part, parts_of
from dgmark_lab.baselines.prf import HashKey, states, threshold, uniform_bits
from dgmark_lab.baselines.published import PublishedFigures
from dgmark_lab.baselines.specs import GloaguenSpec
from dgmark_lab.baselines.tango import colour_of
from dgmark_lab.rule_keys import rule_key
from support.command_line import complaint, run
from support.known_keys import figures_of
from support.toy_experiments import ANY_LENGTH, toy_baseline

TOY = ToyDenoiser(words=12, padding=4, end_ids=())
V = TOY.vocab_size
MASK = TOY.mask_id
FORBIDDEN = torch.tensor([0, *range(14, V)])
KEY = WatermarkKey(
    spec=PositionSpec(table_size=V, tokenizer=TOY.tokenizer.name, tokenizer_fingerprint=TOY.tokenizer.fingerprint),
    key_id="test",
    secret=bytes(range(32)),
)
WIDTH = 6
# two canvases of a prompt of 3 and a response of 9; the window is its places 2..7, with 0 and 1 committed
IDS = torch.tensor([[5, 6, 7, 8, 9, 0, 11, 0, 0, 0, 0, 0], [5, 6, 7, 4, 3, 0, 0, 12, 0, 13, 0, 0]])


def view(temperature: float = 1.0, seed: int = 0) -> Step:
    logits = torch.randn(2, WIDTH, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    masked = IDS[:, 5 : 5 + WIDTH] == MASK
    positions = torch.arange(2, 2 + WIDTH).expand(2, -1)
    window = Window(IDS, 5, positions, (3, IDS.shape[1]), MASK, torch.arange(2))
    return Step(window, logits, masked, FORBIDDEN, temperature)


def biased(name: str, given: Step, **options: object) -> Tensor:
    """What is added to each place of the window; 0 at committed ones."""
    side = side_of_rows([rule_key(name, KEY, **options)] * 2, "cpu")
    before = given.logits.clone()
    added = torch.zeros_like(given.logits)
    changed = side.logits(given)
    assert changed is not None
    added[given.masked] = changed - given.logits[given.masked]
    assert torch.equal(given.logits, before)
    return added


# what each baseline adds at one masked place, from its definition

EVERY, NOTHING = torch.arange(V), torch.zeros(V, dtype=torch.float64)


def by_list(name: str, contexts: Tensor | int, tokens: Tensor | int, use: str = "", gamma: float = 0.5) -> Tensor:
    """1 for what is green under one of the baseline's hash keys; a number stands for all contexts or tokens."""
    state = states(HashKey.of(KEY, f"{name}/{use}" if use else name), contexts + 0 * EVERY)
    return (uniform_bits(state, tokens + 0 * EVERY) < threshold(gamma)).double()


def kgw_adds(_given: Step, row: int, column: int) -> Tensor:
    left = int(IDS[row, column - 1])
    return NOTHING if left == MASK else 3.0 * by_list("kgw", left, EVERY)


def dmark_adds(given: Step, row: int, column: int, form: str) -> Tensor:
    added, left, right = NOTHING, int(IDS[row, column - 1]), int(IDS[row, column + 1])
    alone = right == MASK or form == "predictive"
    if form.startswith("predictive") and left == MASK and alone and column > 5:  # further left there are no logits
        logits = given.logits[row, column - 6].clone()
        logits[FORBIDDEN] = -torch.inf
        left = int(logits.argmax())
    if left != MASK:
        added = added + 1.5 * by_list("dmark", left, EVERY)
    if form.endswith("bidirectional") and right != MASK:
        added = added + 1.5 * by_list("dmark", EVERY, right)
    return added


def lr_dwm_adds(_given: Step, row: int, column: int) -> Tensor:
    neighbours = {"left": int(IDS[row, column - 1]), "right": int(IDS[row, column + 1])}
    lists = [by_list("lr-dwm", token, EVERY, side, 0.25) for side, token in neighbours.items() if token != MASK]
    return 1.5 * sum(lists, start=NOTHING)


def tango_adds(_given: Step, row: int, column: int, lag: int) -> Tensor:
    colour = torch.from_numpy(colour_of(rule_key("tango", KEY, colours="hash", lag=lag)).astype(int))
    beside = [IDS[row, at] for at in (column - lag, column + lag) if 3 <= at < 12 and IDS[row, at] != MASK]
    return 1.5 * ((colour + colour[beside[0]]) % 3 == 0) if beside else NOTHING


def cdmark_adds(_given: Step, _row: int, _column: int) -> Tensor:
    vector = torch.tensor(spreading_vector(HashKey.of(KEY, "cdmark"), V))
    assert torch.allclose(torch.stack([vector.mean(), vector.std(correction=0)]), torch.tensor([0.0, 1.0]).double())
    return 1.5 * vector


def pattern_mark_adds(_given: Step, _row: int, column: int) -> Tensor:
    key = rule_key("pattern-mark", KEY)
    part = torch.from_numpy(parts_of(key, np.arange(V)))
    return (part == (column - 3 + first_part(key)) % 2).double()


@pytest.mark.parametrize(
    ("name", "options", "adds"),
    [
        ("kgw", {"delta": 3.0}, kgw_adds),
        *(
            ("dmark", {"delta": 1.5, "form": form}, partial(dmark_adds, form=form))
            for form in ("normal", "predictive", "bidirectional", "predictive-bidirectional")
        ),
        ("lr-dwm", {"delta": 1.5, "gamma": 0.25}, lr_dwm_adds),
        *(("tango", {"delta": 1.5, "colours": "hash", "lag": lag}, partial(tango_adds, lag=lag)) for lag in (1, 4)),
        ("unigram", {"delta": 2.0}, lambda *_: 2.0 * by_list("unigram", 0, EVERY)),
        ("cdmark", {"delta": 1.5}, cdmark_adds),
        ("pattern-mark", {"delta": 1.0}, pattern_mark_adds),
    ],
)
def test_a_bias_is_what_the_baseline_is_defined_to_add(
    name: str, options: dict[str, Any], adds: Callable[[Step, int, int], Tensor]
) -> None:
    given = view()
    added = biased(name, given, **options)
    for row, place in given.masked.nonzero().tolist():
        torch.testing.assert_close(added[row, place], adds(given, row, place + 5).double(), rtol=1e-5, atol=1e-6)
    assert added.any()


@pytest.mark.parametrize(
    ("name", "lag", "options"),
    [("dmark", 1, {"form": "bidirectional"}), ("lr-dwm", 1, {}), ("tango", 2, {"colours": "hash"})],
)
def test_new_only_takes_the_bias_from_pairs_that_the_text_holds(name: str, lag: int, options: dict[str, Any]) -> None:
    """A pair is what the test counts once: an ordered one, or for tango one in either order."""
    dice = np.random.default_rng(0)
    ids = torch.from_numpy(dice.integers(2, 8, (2, 40)))  # few tokens, so that many pairs are held
    masked = torch.from_numpy(dice.random((2, 40)) < 0.4)
    masked[:, :3] = False
    ids[masked] = MASK
    window = Window(ids, 3, torch.arange(37).expand(2, -1), (3, 40), MASK, torch.arange(2))
    given = Step(window, torch.zeros(2, 37, V, dtype=torch.float64), masked[:, 3:], FORBIDDEN, 1.0)
    keys = [rule_key(name, KEY, **options, new_only=new_only) for new_only in (False, True)]
    plain, fresh = (side_of_rows([key] * 2, "cpu").logits(given) for key in keys)
    assert plain is not None
    assert fresh is not None
    spared = 0
    for number, (row, place) in enumerate(given.masked.nonzero().tolist()):
        column, text = place + 3, ids[row].tolist()
        held = [(a, b) for a, b in zip(text[3:-lag], text[3 + lag :], strict=True) if MASK not in (a, b)]
        sides = [side for side in (-lag, lag) if 0 <= column + side < 40 and text[column + side] != MASK]
        if name == "tango":
            sides = [side for side in sides if column + side >= 3][:1]
            held += [(b, a) for a, b in held]
        for token in range(V):
            pairs = [(text[column + s], token) if s < 0 else (token, text[column + s]) for s in sides]
            if not any(pair in held for pair in pairs):
                assert fresh[number, token] == plain[number, token]
            elif all(pair in held for pair in pairs):
                assert fresh[number, token] == 0
                spared += int(plain[number, token] > 0)
    assert spared > 20


# ---- Gloaguen's energy, in full: every context and every token, differentiated by torch ----


def energy(p: Tensor, known: Tensor, made: GloaguenSpec) -> Tensor:
    every = torch.arange(V)
    total = torch.zeros((), dtype=p.dtype)
    for s in range(3, len(p)):
        beside = [s + offset for offset in made.offsets]
        if not known[s] or not all(0 <= t < len(p) and known[t] for t in beside):
            continue
        contexts = torch.cartesian_prod(*[every for _ in beside]).reshape(-1, len(beside))
        hashes = contexts.sum(1)
        chance = torch.stack([p[t][contexts[:, j]] for j, t in enumerate(beside)]).prod(0)
        table = uniform_bits(states(HashKey.of(KEY, "gloaguen"), hashes)[:, None], every) < threshold(made.gamma)
        total = total + (chance[:, None] * table * p[s]).sum()
    return total


@pytest.mark.parametrize("offsets", [(-1,), (1,), (-1, 1), (-2, -1), (-1, 1, 2)])
def test_alpha_is_the_gradient_of_the_energy(offsets: tuple[int, ...]) -> None:
    made = spec_as(GloaguenSpec, rule_key("gloaguen", KEY, offsets=offsets, top_k=V**3))
    given = view()
    weights = torch.softmax(given.logits.index_fill(-1, FORBIDDEN, -torch.inf), -1)
    added = biased("gloaguen", given, offsets=offsets, top_k=V**3)
    for row in range(2):
        p = torch.zeros(12, V, dtype=torch.float64)
        committed = IDS[row] != MASK
        p[committed] = torch.nn.functional.one_hot(IDS[row][committed], V).double()
        open_places = given.masked[row].nonzero()[:, 0]
        p[5 + open_places] = weights[row, open_places]
        known = committed.clone()
        known[5 + open_places] = True
        # the terms of the prompt's own tokens are left out: the response begins at column 3
        free = p.requires_grad_()
        (gradient,) = torch.autograd.grad(energy(free, known, made), free)
        expected = made.delta / (len(offsets) + 1) * gradient[5 : 5 + WIDTH]
        expected[~given.masked[row]] = 0
        # a token that no position may take has no chance, and so no gradient here
        expected[:, FORBIDDEN] = 0
        found = added[row].clone()
        found[:, FORBIDDEN] = 0
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_tilt_is_of_the_sampled_distribution() -> None:
    """At temperature T, logits / T + strength * alpha(p of T)."""
    cold = view(0.5)
    halved = replace(cold, logits=cold.logits * 2, temperature=1.0)
    torch.testing.assert_close(biased("gloaguen", cold) * 2, biased("gloaguen", halved))


# ---- in the loop ----


@pytest.mark.parametrize("form", ["confidence", "left_to_right", "random"])
def test_a_bias_gets_the_canvas_and_the_models_logits(form: Any) -> None:
    seen: list[Step] = []

    class Spy(OneKeySide):
        def change(self, step: Step) -> Tensor:
            window = replace(step.window, ids=step.window.ids.clone())
            seen.append(replace(step, window=window, masked=step.masked.clone()))
            return step.copied_logits()

    spy = Spy(KEY, 2, "cpu")
    for row in range(2):
        spy.put(row, KEY)
    prompts = torch.tensor([[2, 7, 5], [4, 4, 9]])
    config = DecodeConfig(12, 6, form)
    made = decode(TOY, prompts, config, spy, [1, 2])
    assert made == decode(TOY, prompts, config, NoMark(), [1, 2])
    assert len(seen) == 12
    for given in seen:
        ids, start = given.window.ids, given.window.start
        assert torch.equal(given.logits, TOY(ids)[:, start : start + 6])
        assert torch.equal(given.masked, ids[:, start : start + 6] == MASK)
        assert torch.equal(given.window.positions[0], torch.arange(6) + start - 3)
    assert seen[0].neighbours(-1)[:, 0].tolist() == [5, 9]
    assert (seen[0].neighbours(-1)[:, 1:] == -1).all()
    assert (seen[-1].neighbours(7) == -1).all()


@pytest.mark.parametrize("name", ANY_LENGTH)
def test_rows_are_the_same_alone_and_together_and_streamed(name: str) -> None:
    prompts = ["w1 w2", "w3 w4", "w5 w6"]
    settings: dict[str, Any] = {"length": 12, "block_length": 6, "temperature": 0.8}
    model = replace(TOY, forbidden_bias=9.0)
    together = generate(model, prompts, key=toy_baseline(name, KEY), seed=3, **settings)
    assert not {i for made in together for i in made.token_ids} & set(FORBIDDEN.tolist())
    for index, prompt in enumerate(prompts):
        assert generate(model, prompt, key=toy_baseline(name, KEY), seed=3 + index, **settings) == [together[index]]
    events = stream_generate(model, prompts, key=toy_baseline(name, KEY), seed=3, **settings)
    assert [event.generation for event in events if isinstance(event, RowFinished)] == together
    assert together[0].to_row("x")["rule"] == name
    json.dumps(together[0].to_row("x"))


NEEDS_MATCHES: list[tuple[dict[str, Any], str]] = [
    ({"lookahead": 3}, "lookahead above 1 needs a rule that prefers some candidates"),
    ({"min_relative_reward": 0.1, "strategy": "confidence"}, "prefers some candidates"),
]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        *((name, *refused) for name in ANY_LENGTH for refused in NEEDS_MATCHES),
        ("gumbel", {"temperature": 0}, "temperature 0 draws nothing"),
        ("gumbel", {"noise": "fixed"}, "noise is fixed by this watermark anyway: leave it out"),
        ("kgw", {"alpha": 0.5}, "alpha belongs to keyed draws"),
    ],
)
def test_unsuitable_settings_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        generate(TOY, "w1", key=toy_baseline(name, KEY), length=12, block_length=6, **settings)


# ---- Gumbel-max ----


def test_gumbel_noise_keeps_the_law_of_the_draw() -> None:
    """Fails with chance 1e-7 if it does."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    key = rule_key("gumbel", replace(KEY, spec=replace(KEY.spec, table_size=4)), period=40_000)
    noise = gumbel_noise(key, torch.arange(40_000))
    counts = torch.bincount((p.log() + noise).argmax(-1), minlength=4)
    assert stats.chisquare(counts.numpy(), 40_000 * p.numpy()).pvalue > 1e-7
    assert noise.isfinite().all()


# ---- what is marked is found ----

# ends no response, and writes no end token either, after which ids are not scored
LARGE = ToyDenoiser(words=300, padding=0, spread=6.0, end_bias=-60.0, end_ids=())
LARGE_KEY, OTHER_KEY = (
    WatermarkKey(
        replace(KEY.spec, table_size=LARGE.vocab_size, tokenizer_fingerprint=LARGE.tokenizer.fingerprint),
        "large",
        bytes(range(first, first + 32)),
    )
    for first in (1, 2)
)
MARKS: list[tuple[str, dict[str, Any]]] = CASES["strong marks"]


def marked(name: str, options: dict[str, Any]) -> Generation:
    settings: dict[str, Any] = {"strategy": "random"} if name in ("gloaguen", "dmark", "lr-dwm", "tango") else {}
    made: list[Generation] = generate(
        LARGE, "w1 w2", key=rule_key(name, LARGE_KEY, **options), length=64, block_length=16, **settings
    )
    return made[0]


@pytest.mark.parametrize(("name", "options"), MARKS, ids=str)
def test_marked_text_is_detected_and_by_its_key_alone(name: str, options: dict[str, Any]) -> None:
    ids = marked(name, options).token_ids
    own, another = (rule_key(name, key, **options) for key in (LARGE_KEY, OTHER_KEY))
    found = Detector(own, fpr=1e-3, tokenizer=LARGE.tokenizer).detect(ids)
    assert (found.verdict, found.green_fraction > 0.6) == ("watermarked", True)
    other = Detector(another, fpr=1e-3, tokenizer=LARGE.tokenizer).detect(ids)
    assert other.p_value > 1e-3


@pytest.mark.parametrize(("name", "options"), [one for one in MARKS if one[0] != "gumbel"], ids=str)
@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 1}], ids=str)
def test_a_token_had_a_choice_where_changed_logits_decide(
    name: str, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Without a key these settings leave none."""
    shape: dict[str, Any] = {"length": 64, "block_length": 16, **settings}
    (plain,) = generate(LARGE, "w1 w2", key=None, **shape)
    (made,) = generate(LARGE, "w1 w2", key=rule_key(name, LARGE_KEY, **options), **shape)
    assert made.text != plain.text
    assert made.choices > 0 == plain.choices


def test_gumbel_finds_the_shift_of_a_text_without_its_front() -> None:
    ids = marked("gumbel", {}).token_ids
    found = Detector(rule_key("gumbel", LARGE_KEY), tokenizer=LARGE.tokenizer).detect(ids[11:])
    assert (found.verdict, figures_of(found, PublishedFigures).shift, found.tries) == ("watermarked", 11, 256)


# ---- the command line ----

GENERATE = ("--prompt", "The cat went to", "--length", 16, "--block-length", 16)


def test_the_commands_make_mark_and_detect_by_a_key_of_the_rule(tmp_path: Path) -> None:
    key, out = tmp_path / "key.json", tmp_path / "out.jsonl"
    run("keygen", key, "--rule", "pattern-mark", "--delta", 9, code=0)
    fields = json.loads(key.read_text())
    expected = ("pattern-mark", 9.0, 2, "dgmark-lab")
    assert (fields["rule"], fields["delta"], fields["pattern_length"], fields["package"]) == expected
    assert run("generate", "--key", key, *GENERATE, "--out", out).exit_code == 0
    written = json.loads(out.read_text())
    assert written["rule"] == "pattern-mark"
    found = run("detect", "--key", key, "--ids", out, "--format", "jsonl")
    row = json.loads(found.stdout)
    scored = [i for i in written["token_ids"] if i not in load_tokenizer().special_ids]
    assert (row["rule"], row["num_tokens_scored"], row["schema"]) == ("pattern-mark", len(scored) - 1, 1)
    assert row["green_fraction"] > 0.7
    assert row["figures"]["p_published"] < 0.01
    other = tmp_path / "other.json"
    assert run("keygen", other, "--rule", "pattern-mark", "--delta", 8).exit_code == 0
    assert "differs in key_fingerprint" in run("generate", "--key", other, *GENERATE, "--out", out, code=4).stderr


def test_a_file_of_detections_belongs_to_one_key(tmp_path: Path) -> None:
    text, detected = tmp_path / "text.txt", tmp_path / "detected.jsonl"
    text.write_text("The cat sat on the mat and looked at the moon, which was round. " * 3)
    for name, options in (("kgw", ("--gamma", 0.5)), ("unigram", ())):
        assert run("keygen", tmp_path / f"{name}.json", "--rule", name, *options).exit_code == 0
    card = run("detect", "--key", tmp_path / "unigram.json", "--verbose", text)
    assert "published p-value" in card.stdout
    assert run("detect", "--key", tmp_path / "kgw.json", text, "--out", detected).exit_code == 0
    assert run("detect", "--key", tmp_path / "unigram.json", text, "--out", detected).exit_code == 4


@pytest.mark.parametrize(("options", "message"), CASES["refused arguments of keygen"])
def test_what_keygen_cannot_make_is_refused(tmp_path: Path, options: tuple[Any, ...], message: str) -> None:
    assert message in complaint("keygen", tmp_path / "key.json", *options, code=2)
    assert not (tmp_path / "key.json").exists()


def test_the_help_of_keygen_shows_the_options_of_the_named_rule() -> None:
    shown = " ".join(run("keygen", "--rule", "tango", "--help").stdout.split())
    assert "Rule tango (TANGO): --delta NUMBER Bias on the logits. [default: 5.0]" in shown


@pytest.fixture(scope="module")
def kgw_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kgw") / "kgw.json"
    assert run("keygen", file, "--rule", "kgw").exit_code == 0
    return file


def test_how_many_tokens_a_text_of_the_lab_needs_is_not_known(kgw_file: Path) -> None:
    assert "is not known for rule kgw" in run("key", "show", kgw_file).stdout
    assert json.loads(run("key", "show", kgw_file, "--json").stdout)["tokens_needed"] is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--edit-threshold", 0.9), "--edit-threshold needs matches that an edit may not lose"),
        (("--lookahead", 2), "--lookahead above 1 needs a rule that prefers some candidates"),
        # what only the rule's own strategy forbids
        (("--commit", "threshold"), "commit threshold compares confidences: it needs strategy confidence"),
    ],
)
def test_the_rule_refuses_a_setting_before_others_are_asked_for(
    kgw_file: Path, options: tuple[Any, ...], problem: str
) -> None:
    assert problem in run("generate", "--key", kgw_file, "--prompt", "Once", *options, code=2).stderr


def test_spans_of_whole_texts_are_refused_as_the_option_is_spelled(kgw_file: Path) -> None:
    refused = run("detect", "--key", kgw_file, "--spans", stdin="The king went.", code=2)
    assert "error: --spans finds nothing, as this key's rule tests whole texts only" in refused.stderr


def test_infill_marks_a_share_of_the_words_of_a_text_without_saying_what_is_expected(
    kgw_file: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat and looked at the moon, which was round and very far away.")
    command = ("infill", "--key", kgw_file, "--text", text, "--share", 0.3)
    told, row = run(*command), run(*command, "--json")
    assert (told.exit_code, row.exit_code) == (0, 0), told.stderr + row.stderr
    assert re.search(r"% changed; p-value [\d.e-]+$", told.stderr.strip())
    done = json.loads(row.stdout)
    assert done["expected_p"] is None
    assert 0 < done["p_value"] <= 1


def test_baselines_are_listed_with_their_options() -> None:
    shown = run("baselines").stdout
    assert "kgw  KGW: " in shown
    assert "    gamma=0.5  delta=2.0\n" in shown
    assert "offsets=-1  top_k=50\n" in shown
    assert "form=predictive-bidirectional  new_only=false\n" in shown
