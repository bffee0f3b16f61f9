"""The schemes that cells name, and the detector that scores a cell's texts."""

from collections.abc import Mapping
from typing import Any

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.scorer import Scorer
from dgmark.lab import baselines
from dgmark.lab.baselines import Scheme
from dgmark.watermark.key import WatermarkKey

DGMARK = "dgmark"

# the smallest rate that a report shows; detectors that re-draw keys draw enough for it
_FPR = 1e-4


def load_scheme(name: str | None, options: Mapping[str, Any]) -> Scheme | None:
    """A scheme with its options; None for none.

    Raises:
        SettingsError: no such scheme or option.
    """
    return None if name is None else baselines.scheme(name, **options)


def scheme_options(name: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a scheme, those left out at their defaults.

    Raises:
        SettingsError: no such scheme or option.
    """
    scheme = load_scheme(name, options)
    return {} if scheme is None else {key: value for key, value in scheme.to_dict().items() if key != "name"}


def scorer(
    name: str | None, options: Mapping[str, Any], key: WatermarkKey, tokenizer: Tokenizer, *, deployed: bool = False
) -> Scorer:
    """The detector of a scheme; of no scheme, dgmark's.

    dgmark is given that the text begins at position 0, as the paper's z-test is: one phase, by the exact test.
    `deployed`: it is given nothing, as `dgmark detect` is (mode auto). The other schemes know no such difference.
    """
    scheme = load_scheme(name, options)
    if scheme is not None and name != DGMARK:
        return scheme.detector(key, fpr=_FPR, tokenizer=tokenizer)
    if deployed:
        return Detector(key, tokenizer=tokenizer, fpr=_FPR)
    return Detector(key, tokenizer=tokenizer, fpr=_FPR, mode="intact", phase="start")
