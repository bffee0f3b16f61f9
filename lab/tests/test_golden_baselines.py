"""Texts that the baselines marked and detections of theirs when they were committed: the same ids and figures.

They change only on purpose. To write them anew: `PYTHONPATH=tests python lab/tests/test_golden_baselines.py`
"""

from pathlib import Path
from typing import Any

import pytest
from lab_support import CASES

from dgmark import Detection, Detector, generate
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.published import PublishedFigures
from dgmark_lab.rule_keys import rule_key
from support.goldens import check_equal, forty_texts, order_of_commits, read_golden, words_of, write_golden
from support.known_keys import bound_key, builtin_tokenizer, figures_of, known_key
from support.toy_experiments import ANY_LENGTH
from support.unchecked import unchecked

GOLDEN = Path(__file__).parent / "golden" / "baselines.json"

Options = dict[str, Any]
TOY = ToyDenoiser(words=200, padding=3, spread=6.0, end_bias=-4.0, forbidden_bias=5.0)
TOY_KEY = bound_key("golden baselines", TOY, rule="position")
KEY = known_key("golden baselines")
PROMPTS = [" ".join(f"w{(7 * row + 3 * place) % 40}" for place in range(1 + row % 3)) for row in range(12)]
FPR = 1e-3  # which bounds how many keys are drawn where p-values are by rank

# two settings of each baseline, and the decoding settings of each
SETTINGS: list[tuple[str, Options, Options]] = CASES["settings of golden texts"]
NAMES = [
    " ".join([name, *(f"{field}={tuple(one) if isinstance(one, list) else one}" for field, one in options.items())])
    for name, options, _ in SETTINGS
]


def detections(key: WatermarkKey, contents: Any, tokenizer: Any) -> list[list[Any]]:
    """The figures of detections of the baseline's mark."""
    detector = Detector(key, fpr=FPR, tokenizer=tokenizer)
    return [listed(detection) for detection in detector.detect_many(contents)]


def listed(found: Detection) -> list[Any]:
    """Verdict, why it is uncertain, p-values, z-score, what was scored and matched, and the shift."""
    figures = figures_of(found, PublishedFigures)
    return [
        found.verdict,
        found.uncertain_because,
        found.p_value,
        figures.p_published,
        found.z_score,
        found.num_tokens_scored,
        found.num_tokens_matched,
        [figures.shift, figures.shifts_tested],
    ]


def figures(number: int) -> Options:
    """Twelve texts with the order of the first three, what is detected in each and in forty others."""
    name, options, settings = SETTINGS[number]
    key, toy_key = (rule_key(name, one, **options) for one in (KEY, TOY_KEY))
    texts = generate(TOY, PROMPTS, key=toy_key, seed=5, batch_size=4, length=24, block_length=8, **settings)
    others = forty_texts(KEY)
    return {
        "ids": [words_of(text.token_ids) for text in texts],
        "commits": [order_of_commits(text.trace) for text in texts[:3]],
        "detections": detections(toy_key, [text.token_ids for text in texts], TOY.tokenizer),
        "detections of others": detections(key, others.values(), builtin_tokenizer()),
    }


def test_every_baseline_has_two_settings() -> None:
    assert [*read_golden(GOLDEN)] == NAMES
    assert sorted(name for name, *_ in SETTINGS) == sorted([*ANY_LENGTH] * 2)


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=NAMES)
def test_texts_and_detections_are_those_committed(number: int) -> None:
    with unchecked():
        check_equal(figures(number), read_golden(GOLDEN)[NAMES[number]], NAMES[number])


if __name__ == "__main__":
    write_golden(GOLDEN, {name: figures(number) for number, name in enumerate(NAMES)})
