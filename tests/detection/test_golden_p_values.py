"""The p-values of a fixed corpus: texts, keys and settings whose every figure is committed.

They change only on purpose, together with `STATISTICS_VERSION`. To write them anew:
`PYTHONPATH=tests python tests/detection/test_golden_p_values.py`
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgmark import Detector, Keyring, WatermarkKey
from dgmark.detection.result import PAYLOAD_FIELDS, Detection
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_ids
from support.unchecked import unchecked

GOLDEN = Path(__file__).parents[1] / "golden" / "p_values.json"
PAIRS_GOLDEN = Path(__file__).parents[1] / "golden" / "p_values_pairs.json"
TEXTS = Path(__file__).parents[1] / "texts"

Figures = dict[str, Any]

SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mod3": {"modulus": 3},
    "mod4-rotating": {"modulus": 4, "rotation": 50},
    "code8": {"code_length": 8},
    "code32": {"code_length": 32},
    "rotating": {"rotation": 64},
    "mod6-code12": {"modulus": 6, "code_length": 12},
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"phase": "start"},
    {"fpr": 0.01},
    {"fpr": 1e-9, "max_crop": 100},
]
COMPUTED = (
    *("verdict", "p_value", "num_tokens_scored", "num_tokens_matched", "z_score", "key_fingerprint"),
    *("pairs", "position"),
)


def corpus_of(key: WatermarkKey) -> dict[str, list[int]]:
    """Texts as ids: marked, edited, mixed, cropped, looped, unmarked, short."""
    dice = np.random.default_rng(7)
    whole = marked_ids(key, 260, rate=0.8, seed=1).tolist()
    at = np.flatnonzero(dice.random(len(whole)) < 0.07)
    plain = dice.integers(300, 1800, 300).tolist()
    strong = marked_ids(key, 120, rate=0.95, seed=2).tolist()
    return {
        "marked": whole,
        "cropped": whole[37:],
        "cut": np.delete(whole, at).tolist(),
        "filled": np.insert(whole, at, dice.integers(300, 8000, len(at))).tolist(),
        "mixed": plain[:150] + strong + plain[150:],
        "weak": marked_ids(key, 150, rate=0.66, seed=3).tolist(),
        "looped": (strong[:6] * 40)[:200],
        "plain": plain,
        "short": strong[:9],
    }


def prose() -> dict[str, str]:
    """The texts of tests/texts, and one of them disguised."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.txt"))}
    return {**texts, "disguised": texts["willows"].replace("e", "\u0435").replace(" ", "\u00a0")}


def figures() -> dict[str, Figures]:
    """Every figure of every case, by name."""
    found: dict[str, Figures] = {}
    tokenizer = builtin_tokenizer()
    keys = {name: known_key(f"golden {name}", **spec) for name, spec in SPECS.items()}
    for name, key in keys.items():
        for text, ids in corpus_of(key).items():
            for settings in SETTINGS:
                said = ",".join(f"{k}={v}" for k, v in settings.items()) or "default"
                detection = Detector(key, tokenizer=tokenizer, **settings).detect(ids)
                found[f"{name}/{text}/{said}"] = chosen(asdict(detection))
        only = Detector(key, tokenizer=tokenizer).detect(corpus_of(key)["mixed"], only=[(10, 40), (150, 260)])
        found[f"{name}/mixed/only"] = chosen(asdict(only))
    for title, text in prose().items():
        for steps in ((), ("homoglyphs", "whitespace")):
            detection = Detector(keys["plain"], tokenizer=tokenizer, normalise=steps).detect(text)
            found[f"plain/{title}/{'+'.join(steps) or 'as it is'}"] = chosen(asdict(detection))
    ring = Keyring([*keys.values(), *(known_key(f"golden ring {n}", code_length=32) for n in range(5))])
    for name in ("plain", "code32", "rotating"):
        for text in ("marked", "cut", "plain"):
            detection = ring.detect(corpus_of(keys[name])[text])
            found[f"ring/{name}/{text}"] = chosen(asdict(detection))
    return found


def pair_figures() -> dict[str, Figures]:
    """The figures of keys of rule "bigram" without and with sub-keys, by name."""
    found: dict[str, Figures] = {}
    tokenizer = builtin_tokenizer()
    one, many = known_key("golden pairs", rule="bigram"), known_key("golden sub-keys", subkeys=64)
    for name, key, own in (("one", one, one), ("many", many, many.subkey(41))):
        for text, ids in corpus_of(own).items():
            found[f"{name}/{text}"] = with_pairs(Detector(key, tokenizer=tokenizer).detect(ids))
    found["ring/cut"] = with_pairs(Keyring([one, many]).detect(corpus_of(many.subkey(41))["cut"]))
    return found


def with_pairs(detection: Detection) -> Figures:
    """The figures of a detection, with the sub-key found."""
    return {**chosen(asdict(detection)), **{name: getattr(detection, name) for name in PAYLOAD_FIELDS}}


def chosen(detection: Figures) -> Figures:
    """The figures of a detection that its test computes."""
    return {name: detection[name] for name in COMPUTED}


COMPUTE: dict[str, Callable[[], dict[str, Figures]]] = {"plain": figures, "pairs": pair_figures}
FILES = {"plain": GOLDEN, "pairs": PAIRS_GOLDEN}


def check_equal(found: Any, expected: Any, name: str) -> None:
    """Check that figures are the same, and floats to 9 digits: the last ones depend on the processor."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), name
        for key, value in expected.items():
            check_equal(found[key], value, f"{name}: {key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other, name)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=0), name
    else:
        assert found == expected, name


@pytest.mark.slow
@pytest.mark.parametrize("which", COMPUTE)
def test_the_p_values_of_the_corpus_are_those_committed(which: str) -> None:
    with unchecked():
        check_equal(COMPUTE[which](), json.loads(FILES[which].read_text(encoding="utf-8")), which)


if __name__ == "__main__":
    for name, compute in COMPUTE.items():
        rows = ",\n".join(f"{json.dumps(case)}: {json.dumps(row)}" for case, row in compute().items())
        FILES[name].write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
