"""The p-values of a fixed corpus: texts, keys and settings whose every figure is committed.

They change only on purpose, together with `STATISTICS_VERSION`. To write them anew:
`PYTHONPATH=tests python tests/detection/test_golden_p_values.py`
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from dgmark import Detector, Keyring, WatermarkKey
from dgmark.detection import edit_test, importance_sampling, key_search, spans
from dgmark.detection.edit_test import aligned_test
from dgmark.detection.importance_sampling import Proposal
from dgmark.detection.result import PAYLOAD_FIELDS, Detection, Mode, Span
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_ids
from support.unchecked import unchecked

GOLDEN = Path(__file__).parents[1] / "golden" / "p_values.json"
SUBKEYS_GOLDEN = Path(__file__).parents[1] / "golden" / "p_values_subkeys.json"
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
    {"mode": "intact"},
    {"mode": "edited"},
    {"mode": "intact", "phase": "start"},
    {"fpr": 0.01, "phase": "start"},
    {"fpr": 1e-9, "max_crop": 100},
]
COMPUTED = (
    *("verdict", "p_value", "p_intact", "p_aligned", "draws", "edited_fraction"),
    *("shift", "num_tokens_scored", "num_tokens_matched", "z_window", "key_fingerprint"),
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
        marked_spans = Detector(key, tokenizer=tokenizer).spans(corpus_of(key)["mixed"])
        found[f"{name}/mixed/spans"] = {"spans": [without_subkey(span) for span in marked_spans]}
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


def subkey_figures() -> dict[str, Figures]:
    """The figures of keys with 64 sub-keys, by name."""
    found: dict[str, Figures] = {}
    tokenizer = builtin_tokenizer()
    keys = {name: known_key(f"golden sub {name}", subkeys=64, **SPECS[name]) for name in ("plain", "mod3", "code8")}
    for name, key in keys.items():
        texts = corpus_of(key.subkey(41))
        for text in ("marked", "cropped", "cut", "mixed", "weak", "looped", "plain"):
            for mode in get_args(Mode):
                detection = Detector(key, tokenizer=tokenizer, mode=mode).detect(texts[text])
                found[f"{name}/{text}/{mode}"] = subkey_of(detection)
        marked_spans = Detector(key, tokenizer=tokenizer).spans(texts["mixed"])
        found[f"{name}/mixed/spans"] = {"spans": [asdict(span) for span in marked_spans]}
    found["ring/cut"] = subkey_of(Keyring(list(keys.values())).detect(corpus_of(keys["plain"].subkey(41))["cut"]))
    return found


def subkey_of(detection: Detection) -> Figures:
    """The figures of a detection, with the sub-key found."""
    return {**chosen(asdict(detection)), **{name: getattr(detection, name) for name in PAYLOAD_FIELDS}}


def chosen(detection: Figures) -> Figures:
    """The figures of a detection that its test computes."""
    return {name: detection[name] for name in COMPUTED}


def without_subkey(span: Span) -> Figures:
    """The fields of a span of a key that has no sub-keys."""
    fields = asdict(span)
    assert fields.pop("subkey") is None
    return fields


COMPUTE: dict[str, Callable[[], dict[str, Figures]]] = {"plain": figures, "sub-keys": subkey_figures}
FILES = {"plain": GOLDEN, "sub-keys": SUBKEYS_GOLDEN}


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


def test_the_corpus_has_every_verdict() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    verdicts = [row["verdict"] for row in golden.values() if "verdict" in row]
    assert min(verdicts.count(verdict) for verdict in ("watermarked", "not_detected", "uncertain")) >= 10


# --- other processors ----------------------------------------------------------------------------

NOISE = 1e-12


def add_noise(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Change every sum that decides a rank, a draw or a span by up to 1e-12, as another processor might."""
    dice = np.random.default_rng(seed)

    def noisy(function: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **options: Any) -> Any:
            made = function(*args, **options)
            return tuple(map(moved, made)) if isinstance(made, tuple) else moved(made)

        return changed

    def moved(values: NDArray[Any]) -> NDArray[Any]:
        exact = values.dtype == np.uint8  # groups
        return values if exact else values + dice.uniform(-NOISE, NOISE, values.shape)

    for owner, name in (
        (edit_test, "block_statistics"),
        (key_search, "block_statistics"),
        (spans, "scan"),
        (Proposal, "_log_odds"),
        (Proposal, "_filter"),
        (Proposal, "log_ratio_intact"),
    ):
        monkeypatch.setattr(owner, name, noisy(getattr(owner, name)))


def few_figures() -> dict[str, Figures]:
    """Figures of every kind of text: p-values, sub-keys and spans, under keys with and without sub-keys."""
    found: dict[str, Figures] = {}
    for key in (known_key("golden plain"), known_key("golden mod3", modulus=3), known_key("golden sub", subkeys=64)):
        detector = Detector(key, tokenizer=builtin_tokenizer())
        texts = corpus_of(key if key.spec.subkeys == 1 else key.subkey(41))
        for text, ids in texts.items():
            found[f"{key.key_id}/{text}"] = subkey_of(detector.detect(ids))
        found[f"{key.key_id}/spans"] = {"spans": [asdict(span) for span in detector.spans(texts["mixed"])]}
    return found


def test_rounding_changes_no_p_value_no_verdict_and_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    with unchecked():
        expected = few_figures()
        for seed in range(2):
            with monkeypatch.context() as patched:
                add_noise(patched, seed)
                check_equal(few_figures(), expected, f"noise {seed}")


def test_near_ties_count_against_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loop of six words, many drawn keys fit as well as the key: without a tolerance, rounding would decide."""
    key = known_key("golden plain")
    ids, positions = np.array(corpus_of(key)["looped"]), np.arange(200)
    with unchecked():
        expected = aligned_test(key.tables, ids, positions, "any")[0]
        add_noise(monkeypatch, 0)
        assert aligned_test(key.tables, ids, positions, "any")[0] == pytest.approx(expected, rel=1e-9)
        monkeypatch.setattr(importance_sampling, "TOLERANCE", 0.0)
        assert aligned_test(key.tables, ids, positions, "any")[0] < 0.99 * expected


if __name__ == "__main__":
    for name, compute in COMPUTE.items():
        rows = ",\n".join(f"{json.dumps(case)}: {json.dumps(row)}" for case, row in compute().items())
        FILES[name].write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
