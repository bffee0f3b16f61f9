"""The oracle: its chances against all keys, the decode that it follows, and its table."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_support import benchmark, write_rows

from dgmark import Detector, generate, load_model
from dgmark.decode.steps.proposals import keyed_shares
from dgmark.models.loaded import LoadedModel
from support.known_keys import known_key

KEY = known_key("oracle", rule="bigram", subkeys=8)
oracle = benchmark("oracle")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(device="cpu", dtype="fp32")


@pytest.fixture(scope="module")
def row(model: LoadedModel) -> dict[str, Any]:
    """A marked text of 48 tokens, as `dgmark generate --json` writes it."""
    (made,) = generate(
        model, ["The miller had three sons."], key=KEY, subkey=3, length=48, block_length=8, temperature=0.9
    )
    return made.to_row("text")


def test_chances_of_matches_are_those_over_all_keys() -> None:
    before = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    signs = torch.tensor([[1, -1], [1, 0], [-1, 1]], dtype=torch.int8)  # the second candidate completes one bit
    places = signs.nonzero().tolist()
    for drawn in range(3):
        weight = dict.fromkeys(signs[drawn].nonzero()[:, 0].tolist(), 0.0)
        total = 0.0
        for bits in itertools.product((-1, 1), repeat=len(places)):
            key = torch.zeros_like(signs)
            for (candidate, bit), value in zip(places, bits, strict=True):
                key[candidate, bit] = value
            gain = float(keyed_shares(before[None], key[None], 1.0)[0, drawn] / before[drawn])
            total += gain
            for bit in weight:
                weight[bit] += gain * bool(key[drawn, bit] > 0)
        found = dict(oracle._chances(before, signs, drawn, torch.Generator().manual_seed(1)))
        assert found.keys() == weight.keys()
        for bit, chance in found.items():
            assert chance == pytest.approx(weight[bit] / total, abs=0.12)  # 5 deviations of 512 keys


def test_the_key_that_marked_a_text_is_likelier_than_the_others(model: LoadedModel, row: dict[str, Any]) -> None:
    own, *others = (oracle.oracle_digits(model, {**row, "subkey": number}, KEY) for number in (3, 0, 7))
    for test, least in (("best weights", 2), ("likelihood ratio", 6)):
        assert own[test] > max(least, *(one[test] for one in others))
    # 1 / ratio is a p-value: over keys that did not mark the text, the ratio has the mean 1
    assert max(one["likelihood ratio"] for one in others) < math.log10(2 / 1e-3)


def test_a_trace_of_another_decode_is_refused(model: LoadedModel, row: dict[str, Any]) -> None:
    trace = {**row["trace"], "reward": [*row["trace"]["reward"][:9], 0.123456, *row["trace"]["reward"][10:]]}
    with pytest.raises(ValueError, match="text: another decode"):
        oracle.oracle_digits(model, {**row, "trace": trace}, KEY)


def test_the_table_has_a_column_for_each_test(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / "rows.jsonl", [row])
    KEY.save(tmp_path / "key.json")
    monkeypatch.setattr(oracle, "oracle_digits", lambda *_: {"best weights": 12.34})
    monkeypatch.setattr(
        "sys.argv", ["oracle.py", *(str(tmp_path / name) for name in ("rows.jsonl", "key.json")), "storyteller"]
    )
    oracle.main()
    p = Detector(KEY.subkey(3)).detect(row["text"]).p_value
    assert capsys.readouterr().out.splitlines()[::2] == [
        "| texts | the count | best weights |",
        f"| 1 | {-math.log10(p):.1f} | 12.3 |",
    ]
