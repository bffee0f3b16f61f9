"""The options `--baseline` and `--baseline-option`: another watermark than dgMARK, for comparison.

A package offers baselines by the entry point `parse` in the group `dgmark.baselines`: a function of a name and of
options written as name=value that returns the baseline or raises SettingsError. `dgmark-lab` is such a package.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from dgmark.arguments import check_name
from dgmark.cli.option_groups import OptionGroup
from dgmark.errors import MissingExtra, SettingsError
from dgmark.extras import needed_extra

if TYPE_CHECKING:
    from dgmark.decode.prompts import Baseline
    from dgmark.detection.result import Scorer
    from dgmark.watermark.key import WatermarkKey

    class DetectableBaseline(Baseline, Protocol):
        """A watermark that both marks texts and detects its mark."""

        def detector(self, key: WatermarkKey, *, fpr: float, tokenizer: Any) -> Scorer:
            """The detector of its mark under this key."""
            ...


BaselineName = Annotated[str | None, typer.Option(help="Another watermark than dgMARK, from dgmark-lab.")]
BaselineOptions = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of the --baseline, such as delta=2; repeatable.")
]


def baseline_of(baseline: BaselineName = None, baseline_option: BaselineOptions = None) -> "DetectableBaseline | None":
    """The baseline that `--baseline` names, with its options; None, for dgMARK, without a name.

    Raises:
        SettingsError: the baseline or an option does not exist, or options are given without a baseline.
        MissingExtra: no installed package offers baselines, or torch is not installed.
    """
    if baseline is None:
        if baseline_option:
            raise SettingsError("--baseline-option needs a baseline: name it with --baseline")
        return None
    check_name(baseline, "the --baseline")
    offered = list(entry_points(group="dgmark.baselines", name="parse"))
    if not offered:
        raise MissingExtra("--baseline needs the package dgmark-lab: run `pip install ./lab` in a checkout of dgmark")
    with needed_extra("generate", "--baseline"):
        parse: Callable[[str, Sequence[str]], DetectableBaseline] = offered[0].load()
    return parse(baseline, baseline_option or [])


BASELINE_GROUP = OptionGroup(baseline_of)
BaselineToMark = Annotated["Baseline | None", BASELINE_GROUP]
