"""The p-values of a fixed corpus: texts, keys and settings whose every figure is committed.

They change only on purpose, together with `STATISTICS_VERSION`. To write them anew:
`PYTHONPATH=tests python tests/detection/test_golden_p_values.py`
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgmark import Detector, Keyring, WatermarkKey
from dgmark.detection.results.detection import PAYLOAD_FIELDS, Detection
from support.cases import data
from support.goldens import Rows, check_equal, forty_texts, read_golden, write_golden
from support.known_keys import builtin_tokenizer, known_key, weight_figures
from support.marked_texts import marked_ids
from support.surprisal_models import HASHED
from support.unchecked import unchecked

GOLDEN = Path(__file__).parents[1] / "golden" / "p_values.json"
KINDS_GOLDEN = Path(__file__).parents[1] / "golden" / "p_values_kinds.json"
PAIRS_GOLDEN = Path(__file__).parents[1] / "golden" / "p_values_pairs.json"
WEIGHTED_GOLDEN = Path(__file__).parents[1] / "golden" / "p_values_weighted.json"
TEXTS = Path(__file__).parents[1] / "texts"

Figures = dict[str, Any]

SPECS: dict[str, dict[str, Any]] = data(__file__, "positions")
SETTINGS: list[dict[str, Any]] = [{}, {"phase": "start"}, {"fpr": 0.01}, {"fpr": 1e-9, "max_crop": 100}]
COMPUTED = ("verdict", "p_value", "num_tokens_scored", "num_tokens_matched", "z_score", "key_fingerprint", "figures")


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


KINDS_OF_KEYS: dict[str, dict[str, Any]] = data(__file__, "kinds")


def kinds_of_text() -> dict[str, list[Any]]:
    """Of forty texts under each kind of key, and of a ring of them, the figures in the order in which they are listed.

    Verdict, why it is uncertain, p-value, z-score, tokens scored and matched, the rule's own figures, what was undone,
    the sub-key with its confidence, the spans, and how many of them are found at a rate a little below the p-value of
    the best.
    """
    found: dict[str, list[Any]] = {}
    tokenizer = builtin_tokenizer()
    keys = {name: known_key(f"golden kinds {name}", **spec) for name, spec in KINDS_OF_KEYS.items()}
    for name, key in keys.items():
        texts = forty_texts(key.subkey(200) if key.num_subkeys > 1 else key)
        detector = Detector(key, tokenizer=tokenizer)
        for title, detection in zip(texts, detector.detect_many(texts.values()), strict=True):
            spans = detector.spans(texts[title]) if not detector.no_spans else ()
            best = min((span.p_value for span in spans), default=None)
            fewer = best and len(Detector(key, tokenizer=tokenizer, fpr=0.75 * best).spans(texts[title]))
            found[f"{name}/{title}"] = [*listed(detection), [list(asdict(span).values()) for span in spans], fewer]
    del keys["words"], keys["distance 0"]
    ring, texts = Keyring([*keys.values()], tokenizer=tokenizer), forty_texts(keys["bigram"])
    for title, detection in zip(texts, ring.detect_many(texts.values()), strict=True):
        found[f"ring/{title}"] = [detection.key_fingerprint, *listed(detection)]
    return found


def weighted_figures() -> dict[str, list[Any]]:
    """Of forty texts, weighed by a model of plain rules, the figures as listed, those of the weights, and the spans."""
    found: dict[str, list[Any]] = {}
    for name in ("bigram", "sub-keys", "words", "distance 0"):
        key = known_key(f"golden weighted {name}", **KINDS_OF_KEYS[name])
        texts = forty_texts(key.subkey(200) if key.num_subkeys > 1 else key)
        detector = Detector(key, tokenizer=builtin_tokenizer(), surprisal_model=HASHED)
        for title, detection in zip(texts, detector.detect_many(texts.values()), strict=True):
            spans = [list(asdict(span).values()) for span in detector.spans(texts[title])]
            found[f"{name}/{title}"] = [*listed(detection), list(asdict(weight_figures(detection)).values()), spans]
    return found


def listed(detection: Detection) -> list[Any]:
    """The figures of a detection in one list."""
    own = [value for name, value in asdict(detection.figures).items() if name != "weights"]
    return [
        detection.verdict,
        detection.uncertain_because,
        detection.p_value,
        detection.z_score,
        detection.num_tokens_scored,
        detection.num_tokens_matched,
        own,
        list(detection.normalised),
        detection.subkey,
        detection.subkey_confidence,
    ]


COMPUTE: dict[str, Callable[[], Rows]] = {
    "plain": figures,
    "pairs": pair_figures,
    "kinds": kinds_of_text,
    "weighted": weighted_figures,
}
FILES = {"plain": GOLDEN, "pairs": PAIRS_GOLDEN, "kinds": KINDS_GOLDEN, "weighted": WEIGHTED_GOLDEN}


@pytest.mark.slow
@pytest.mark.parametrize("which", COMPUTE)
def test_the_p_values_of_the_corpus_are_those_committed(which: str) -> None:
    with unchecked():
        check_equal(COMPUTE[which](), read_golden(FILES[which]), which)


if __name__ == "__main__":
    for name, compute in COMPUTE.items():
        write_golden(FILES[name], compute())
