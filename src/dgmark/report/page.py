"""A report as JSON, or as a page: one HTML file without network and script, which prints well and can be read aloud."""

import json
import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgmark.arguments.checks import as_path, instance, is_of
from dgmark.detection.results.sentences import SHADED, matches, symbol, where
from dgmark.detection.results.words import RAREST, numbers_between, place, rarity
from dgmark.errors import SettingsError, needed_extra
from dgmark.files.outputs import atomic_write
from dgmark.report.joined import JoinedReport
from dgmark.report.signed import stated
from dgmark.report.signing import SigningKey
from dgmark.report.statement import PROVES, Report

if TYPE_CHECKING:
    from jinja2 import Template

# the scale of rarities ends here, or a thousand times beyond the false-positive rate
_RAREST = 12


@dataclass(frozen=True)
class Scale:
    """Where p-values lie on the scale of rarities, in percent of its width: rarer is further right."""

    decades: int

    @classmethod
    def of(cls, fpr: float) -> "Scale":
        """The scale of a test at this false-positive rate."""
        return cls(max(_RAREST, math.ceil(-math.log10(fpr)) + 3))

    def place(self, p_value: float) -> float:
        """The place of a p-value, in percent; the end of the scale for what lies beyond it."""
        return round(min(1.0, max(0.0, -math.log10(p_value) / self.decades)) * 100, 2)

    def beyond(self, p_value: float) -> bool:
        """Whether a p-value lies beyond the end of the scale."""
        return p_value < 10.0**-self.decades

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels."""
        step = max(1, math.ceil(self.decades / 6))
        powers = range(step, self.decades + 1, step)
        labels = [(self.place(10.0**-power), rarity(10.0**-power)) for power in powers]
        return [(0.0, "every time"), *labels]


def to_json(report: Report | JoinedReport) -> bytes:
    """The report as a JSON document, with an empty place for a signature."""
    fields = {**report.to_fields(), "signature": ""}
    return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def to_html(report: Report | JoinedReport) -> bytes:
    """The report as a page, with an empty place for a signature; a MissingExtra without jinja2."""
    fields = report.to_fields()
    if isinstance(report, JoinedReport):
        name, shown = "joined", {"joined": report, "singles": report.singles}
    else:
        name, shown = "page", {"report": report, "method": fields["method"], **_facts(report)}
    facts = json.dumps(stated(fields), ensure_ascii=False)
    page = template("dgmark.report", ".", name).render(stated=facts, rarity=rarity, place=place, **shown)
    return (page.rstrip() + "\n").encode()


def _facts(report: Report) -> dict[str, Any]:
    """What the page of one text says beside the fields of its report."""
    detection = report.detection
    # a count says nothing where the test tells nothing
    by_chance = None if detection.verdict == "uncertain" else report.by_chance
    return {
        "detection": detection,
        "found": detection.verdict == "watermarked" or bool(report.spans),
        "mark": symbol(detection),
        "matches": matches(detection),
        "where": where(detection),
        "shaded": SHADED,
        "proves": PROVES,
        "scale": Scale.of(detection.fpr),
        "rarest": RAREST,
        "by_chance": by_chance and numbers_between(*by_chance),
    }


@cache
def template(package: str, folder: str, name: str) -> "Template":
    """The template of a page in a folder of a package; a MissingExtra without jinja2."""
    with needed_extra("report", "a page", "jinja2"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    environment = Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{name}.html.jinja")


_WRITERS = {".html": to_html, ".json": to_json}


def check_report_path(path: str | os.PathLike[str]) -> None:
    """Refuse a file name that does not say which kind of report is meant.

    Raises:
        SettingsError: the name ends neither in .html nor in .json, no file can have it, or its folder does not exist.
    """
    if as_path(path, "a report").suffix.lower() not in _WRITERS:
        raise SettingsError(f"the report {path} does not end in .html or .json: the ending chooses the kind of report")
    if not Path(path).parent.is_dir():
        raise SettingsError(f"the folder of the report {path} does not exist: make it, or choose another place")


def write_report(
    report: Report | JoinedReport, path: str | os.PathLike[str], *, signer: SigningKey | None = None
) -> None:
    """Write a report as a page (.html) or as JSON (.json), whole or not at all.

    Args:
        report: the report of a text, or of several.
        path: the file; an existing one is replaced.
        signer: the key to sign it with; unsigned by default.

    Raises:
        SettingsError: the name ends neither in .html nor in .json, or another argument is of a wrong type.
        InputError: the file cannot be written.
        MissingExtra: jinja2 is not installed.
    """
    if not is_of(report, JoinedReport):
        instance("the report", report, Report)
    if signer is not None:
        instance("the signer", signer, SigningKey)
    check_report_path(path)
    document = _WRITERS[Path(path).suffix.lower()](report)
    atomic_write(Path(path), document if signer is None else signer.sign(document))
