"""The schemes that cells name, and the detector that scores a cell's texts."""

from collections.abc import Mapping
from typing import Any

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.result import Scorer
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines import Baseline, baseline

DGMARK = "dgmark"

# the smallest rate that a report shows; detectors that re-draw keys draw enough keys for it
_FPR = 1e-4


def load_scheme(name: str | None, options: Mapping[str, Any]) -> Baseline | None:
    """Load a baseline with its options; None for no scheme and for dgMARK itself, which has no options.

    Raises:
        SettingsError: no scheme or option has this name.
    """
    if name == DGMARK and options:
        raise SettingsError(f"scheme {DGMARK} has no option {', '.join(options)}: its key holds its settings")
    return None if name in (None, DGMARK) else baseline(str(name), **options)


def scheme_options(name: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a scheme, with defaults for those left out.

    Raises:
        SettingsError: no scheme or option has this name.
    """
    scheme = load_scheme(name, options)
    return {} if scheme is None else {key: value for key, value in scheme.to_dict().items() if key != "name"}


def scorer(
    name: str | None, options: Mapping[str, Any], key: WatermarkKey, tokenizer: Tokenizer, *, deployed: bool = False
) -> Scorer:
    """Return the detector of a scheme, or dgmark's for no scheme.

    dgmark's detector assumes that the text begins at position 0, like the paper's z-test: one phase, exact test. With
    `deployed` it assumes nothing, like `dgmark detect` (mode auto). The other schemes make no such difference.
    """
    scheme = load_scheme(name, options)
    if scheme is not None:
        return scheme.detector(key, fpr=_FPR, tokenizer=tokenizer)
    if deployed:
        return Detector(key, tokenizer=tokenizer, fpr=_FPR)
    return Detector(key, tokenizer=tokenizer, fpr=_FPR, mode="intact", phase="start")
