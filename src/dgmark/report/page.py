"""A report as a page: one HTML file that needs no network and no script, prints well, and can be read aloud."""

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from dgmark.detection.result import rarity, symbol
from dgmark.errors import MissingExtra, install_hint
from dgmark.report.contents import Report

if TYPE_CHECKING:
    from jinja2 import Template

# the scale of rarities ends here, or a thousand times beyond the false-positive rate
_RAREST = 12


@dataclass(frozen=True)
class Scale:
    """Where p-values lie on the scale of rarities, in percent of its width: rarer is further right."""

    decades: int

    def place(self, p_value: float) -> float:
        """The place of a p-value, in percent; the end of the scale for what lies beyond it."""
        return round(min(1.0, max(0.0, -math.log10(p_value) / self.decades)) * 100, 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels."""
        step = max(1, math.ceil(self.decades / 6))
        powers = range(step, self.decades + 1, step)
        labels = [(self.place(10.0**-power), rarity(10.0**-power)) for power in powers]
        return [(0.0, "every time"), *labels]


def to_json(report: Report) -> bytes:
    """The report as a JSON document, with an empty place for a signature."""
    fields = {**report.to_fields(), "signature": ""}
    return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def to_html(report: Report) -> bytes:
    """The report as a page, with an empty place for a signature.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    fpr = report.detection.fpr
    page = _template().render(
        report=report,
        detection=report.detection,
        heading=report.heading,
        mark=symbol(report.detection, spans=len(report.passages)),
        method=report.to_fields()["method"],
        scale=Scale(max(_RAREST, math.ceil(-math.log10(fpr)) + 3)),
        rarity=rarity,
    )
    return (page.rstrip() + "\n").encode()


@cache
def _template() -> "Template":
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingExtra(f"report pages need jinja2: {install_hint('report')}") from error
    environment = Environment(
        loader=PackageLoader("dgmark.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja")
