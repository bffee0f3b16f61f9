"""Many rows in one call: the key, sub-key, seed and error of each, and rows that their ids decide."""

import secrets
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from dgmark import DecodeConfig, Infilling, WatermarkKey, generate, infill, stream_generate, subkey_of
from dgmark.decode import Prepared, Request, RowFinished
from dgmark.decode.config import DecodeSettings
from dgmark.decode.texts.generation import GenerateArguments, generations
from dgmark.decode.texts.infilling import InfillArguments
from dgmark.decode.texts.requests import seed_of
from dgmark.detection.detector import Detector, DetectorSettings
from dgmark.errors import DgmarkError, InputError, ModelFault, PromptTooLong, SettingsError
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.baselines import BASELINES
from support.known_keys import bound_key
from support.signatures import arguments_of
from support.unchecked import unchecked

TOY = ToyDenoiser()
SMALL = ToyDenoiser(context_length=15, end_ids=(), name="small")
SHORT: dict[str, Any] = {"length": 8, "block_length": 4}
KEY, OTHER = (bound_key(name, TOY, subkeys=64) for name in ("rows", "others"))
MANY = bound_key("many", TOY, subkeys=4096)
PARTS: list[str | int] = ["w1 w2 w3", 7, "w4 w5", 12, "w6 w7 w8 w9"]
PROMPTS = ["w1 w2", "w3", "w4 w5", "w6 w7 w8"]
IDS: list[str | int] = ["a", "b", 7, "déjà vu"]


# ---- ids ----


def test_ids_decide_rows_in_any_order_batch_and_repetition() -> None:
    rows = generate(TOY, PROMPTS, key=KEY, ids=IDS, seed=5, **SHORT)
    assert [row.seed for row in rows] == [seed_of(5, str(one)) for one in IDS]
    assert [row.subkey for row in rows] == [subkey_of(KEY, one) for one in IDS]
    backwards = generate(TOY, PROMPTS[::-1], key=KEY, ids=IDS[::-1], seed=5, batch_size=1, **SHORT)
    assert backwards == rows[::-1]
    events = stream_generate(TOY, PROMPTS[2:], key=KEY, ids=IDS[2:], seed=5, **SHORT)
    assert [event.generation for event in events if isinstance(event, RowFinished)] == rows[2:]
    others = generate(TOY, PROMPTS, key=KEY, ids=IDS, seed=6, **SHORT)
    assert {row.seed for row in others}.isdisjoint(row.seed for row in rows)
    assert [row.subkey for row in others] == [row.subkey for row in rows]


def test_the_seed_of_an_id_is_the_same_for_ever() -> None:
    assert seed_of(0, "a") == 2667504085557927953
    assert seed_of(0, "a") != seed_of(1, "a") != seed_of(0, "b")
    assert min(seeds := [seed_of(0, str(n)) for n in range(1000)]) >= 0
    assert max(seeds) < 2**63
    assert len(set(seeds)) == 1000


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (["a", "b", "a", "c"], InputError, "2 rows have the id 'a'"),
        (["1", 1, "b", "c"], InputError, "2 rows have the id '1'"),
        (["a", None, "b", "c"], SettingsError, "id 1 .* is None"),
        (["a", "b"], SettingsError, "ids is a list of 2 for 4 rows"),
        ("abcd", SettingsError, "as a list"),
    ],
    ids=str,
)
def test_ids_that_name_no_rows_are_refused(ids: Any, error: type[Exception], message: str) -> None:
    with unchecked(), pytest.raises(error, match=message):
        generate(TOY, PROMPTS, key=KEY, ids=ids, **SHORT)


# ---- lists ----


def test_each_row_has_its_own_key_subkey_and_seed() -> None:
    keys, subkeys, seeds = [KEY, None, OTHER, KEY], [3, None, 4, 3], [9, 1, 2**40, 9]
    rows = generate(TOY, PROMPTS, key=keys, subkey=subkeys, seed=seeds, **SHORT)
    for row, prompt, key, subkey, seed in zip(rows, PROMPTS, keys, subkeys, seeds, strict=True):
        # alone, unmarked text has the settings of no rule: given here, so that all rows are decoded alike
        assert generate(TOY, prompt, key=key, subkey=subkey, seed=seed, config=DecodeConfig(**row.settings)) == [row]
    assert [row.key_fingerprint for row in rows] == [KEY.fingerprint, None, OTHER.fingerprint, KEY.fingerprint]


@pytest.mark.parametrize("name", ["key", "subkey", "seed"])
def test_a_list_has_one_item_for_each_row(name: str) -> None:
    given: dict[str, Any] = {"key": KEY, "subkey": 1, "seed": 1}
    with pytest.raises(SettingsError, match=f"{name} is a list of 3 for 4 rows"):
        generate(TOY, PROMPTS, **{**given, name: [given[name]] * 3}, **SHORT)
    with unchecked(), pytest.raises(SettingsError):
        generate(TOY, PROMPTS, **{**given, name: [given[name]] * 3 + ["no"]}, **SHORT)


# ---- errors ----

BAD: dict[str, tuple[Any, type[DgmarkError]]] = {
    "missing": (None, SettingsError),
    "nan": (float("nan"), SettingsError),
    "bytes": (b"w1", SettingsError),
    "empty": ("", InputError),
    "too long": ("w1 " * 9, PromptTooLong),
    "unknown id": ([2, 10**6], InputError),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_an_error_in_its_place_and_leaves_the_others(name: str) -> None:
    bad, kind = BAD[name]
    key = bound_key("bad", SMALL)
    good = generate(SMALL, ["w1", "w2"], key=key, seed=[4, 6], **SHORT)
    with unchecked():
        first, error, last = generate(SMALL, ["w1", bad, "w2"], key=key, seed=4, errors="return", **SHORT)
        assert [first, last] == good
        assert type(error) is kind
        with pytest.raises(kind):
            generate(SMALL, ["w1", bad, "w2"], key=key, **SHORT)


class _Failing(ToyDenoiser):
    """A model that fails at canvases with a certain word."""

    def __call__(self, ids: Any) -> Any:
        logits = super().__call__(ids)
        logits[(ids == 9).any(1)] = float("nan")
        return logits


def test_a_row_at_which_the_model_fails_is_an_error_in_its_place() -> None:
    model = _Failing(context_length=40, end_ids=(), words=5)
    rows = generate(model, [[3], [9], [4]], key=None, errors="return", **SHORT)
    assert type(rows[1]) is ModelFault
    assert [rows[0], rows[2]] == generate(model, [[3], [4]], key=None, seed=[0, 2], **SHORT)


@pytest.mark.parametrize("errors", ["ignore", None, True])
def test_there_are_two_ways_with_errors(errors: Any) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: generate(TOY, [], key=None, errors=errors),
        lambda: infill(TOY, [], key=None, errors=errors),
        lambda: Detector(KEY, tokenizer=TOY.tokenizer).detect_many([], errors=errors),
    )
    for call in calls:
        with unchecked(), pytest.raises(SettingsError, match='neither "raise" nor "return"'):
            call()


# ---- infilling ----


def test_texts_with_holes_have_ids_lists_and_errors_as_prompts_have() -> None:
    texts: list[Any] = [["w1", 4, "w2"], ["w1"], ["w3", 3], None]
    keys, ids = [KEY, KEY, None, KEY], ["a", "b", "c", "d"]
    with unchecked():
        first, no_hole, unmarked, none = infill(TOY, texts, key=keys, ids=ids, errors="return", block_length=4)
    assert (type(no_hole), type(none)) == (InputError, InputError)
    assert isinstance(first, Infilling)
    assert isinstance(unmarked, Infilling)
    assert (first.seed, first.subkey) == (seed_of(0, "a"), subkey_of(KEY, "a"))
    assert (unmarked.seed, unmarked.subkey, unmarked.key_fingerprint) == (seed_of(0, "c"), None, None)
    assert infill(TOY, [texts[0]], key=KEY, ids=["a"], block_length=4) == [first]
    assert infill(TOY, [texts[2]], key=None, seed=[unmarked.seed], block_length=4) == [unmarked]


@pytest.mark.slow
def test_texts_without_holes_pay_for_all_sub_keys_of_their_own_keys(storyteller: NetworkDenoiser) -> None:
    keys = [bound_key(name, storyteller, subkeys=64) for name in ("rows", "none", "others")]
    texts: list[Any] = ["The old king went down to the sea.", [5, 6], "She looked at the water for a long time."]
    given: dict[str, Any] = {"share": 0.5, "errors": "return"}
    first, ids, last = infill(storyteller, texts, key=keys, ids=["a", "b", "c"], **given)
    assert type(ids) is InputError
    for row, text, key, name in ((first, texts[0], keys[0], "a"), (last, texts[2], keys[2], "c")):
        assert isinstance(row, Infilling)
        assert infill(storyteller, [text], key=key, ids=[name], **given) == [row]
        assert row.remasking
        assert row.remasking.p_value == Detector(key, tokenizer=storyteller.tokenizer).detect(row.text).p_value


# ---- settings ----


def test_the_typed_settings_are_the_fields_of_the_config() -> None:
    hints, fields = get_type_hints(DecodeSettings), get_type_hints(DecodeConfig)
    assert hints == {name: fields[name] for name in DecodeConfig.__dataclass_fields__}


@pytest.mark.parametrize(
    ("function", "arguments", "own"),
    [
        (generate, GenerateArguments, {"model", "prompts", "errors"}),
        (infill, InfillArguments, {"model", "texts", "errors"}),
        (Detector, DetectorSettings, {"key"}),
    ],
)
def test_the_typed_arguments_are_those_of_the_function(function: Any, arguments: Any, own: set[str]) -> None:
    assert set(get_type_hints(arguments)) == arguments_of(function) - own


def test_a_config_stands_for_all_settings() -> None:
    config = DecodeConfig(length=8, block_length=4, temperature=0.5)
    by_settings = generate(TOY, "w1", key=None, length=8, block_length=4, temperature=0.5)
    assert generate(TOY, "w1", key=None, config=config) == by_settings
    (filled,) = infill(TOY, [["w1", 3]], key=None, config=config)
    assert [filled] == infill(TOY, [["w1", 3]], key=None, block_length=4, temperature=0.5)
    with pytest.raises(SettingsError, match="config holds all settings, and top_k came beside it"):
        generate(TOY, "w1", key=None, config=config, top_k=3)
    with unchecked(), pytest.raises(SettingsError, match="config is of type str"):
        generate(TOY, "w1", key=None, config="fast")  # type: ignore[call-overload]


def test_a_key_without_subkeys_takes_ids() -> None:
    key: WatermarkKey = bound_key("one", TOY)
    (row,) = generate(TOY, "w1", key=key, ids=["a"], **SHORT)
    assert (row.seed, row.subkey) == (seed_of(0, "a"), None)


# ---- sub-keys ----


def test_the_operating_system_draws_once_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def below(count: int) -> int:
        asked.append(count)
        return len(asked)

    monkeypatch.setattr(secrets, "randbelow", below)
    rows = generate(TOY, ["w1", "w2", "w3 w4"], key=MANY, batch_size=2, **SHORT)
    assert [row.subkey for row in rows] == [1, 2, 3]  # whatever the seeds and prompts
    assert asked == [4096] * 3


def test_a_given_sub_key_marks_every_row_and_writes_the_same_text_again() -> None:
    one, two = (generate(TOY, ["w1", "w2 w3"], key=MANY, subkey=77, seed=3, **SHORT) for _ in range(2))
    assert one == two == generate(TOY, ["w1", "w2 w3"], key=MANY.subkey(77), seed=3, **SHORT)
    assert [row.subkey for row in one] == [77, 77]
    assert {row.key_fingerprint for row in one} == {MANY.fingerprint}
    assert [row.token_ids for row in one] != [
        row.token_ids for row in generate(TOY, ["w1", "w2 w3"], key=MANY, subkey=78, seed=3, **SHORT)
    ]


def test_a_request_keeps_the_sub_key_that_it_drew() -> None:
    prepared = Prepared.of(TOY, [Request("w1", 0, MANY)], SHORT)
    first, again = (generations(prepared, [0])[0] for _ in range(2))
    assert first == again
    assert first.subkey == prepared.requests[0].subkey


def test_holes_are_filled_with_a_sub_key_of_each_text() -> None:
    one, two, three = infill(TOY, [PARTS, PARTS, PARTS], key=MANY, seed=1)
    assert len({one.subkey, two.subkey, three.subkey}) > 1  # three draws of one number: 6e-8
    assert one.to_row("a")["subkey"] == one.subkey
    (again,) = infill(TOY, [PARTS], key=MANY, subkey=one.subkey, seed=1)
    assert again == one
    assert infill(TOY, [PARTS], key=None)[0].to_row("a")["subkey"] is None


@pytest.mark.parametrize(
    ("key", "message"), [(MANY, r"sub-key 4096 is not in 0\.\.4095"), (None, "text without a mark has")]
)
def test_a_sub_key_that_there_is_not_is_refused(key: WatermarkKey | None, message: str) -> None:
    ways: list[tuple[Any, Any]] = [(generate, "w1"), (stream_generate, "w1"), (infill, [PARTS])]
    for way, given in ways:
        with pytest.raises(SettingsError, match=message):
            way(TOY, given, key=key, subkey=4096)


@pytest.mark.parametrize("name", BASELINES)
def test_a_published_rule_has_no_sub_keys(name: str) -> None:
    with pytest.raises(SettingsError, match=f"rule {name} has no sub-keys: leave that out"):
        WatermarkKey.generate(TOY, rule=name, subkeys=4)
    assert WatermarkKey.generate(TOY, rule=name, subkeys=1).num_subkeys == 1
