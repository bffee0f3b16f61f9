"""Reports of a detection that one can file: a page and a JSON document, signed if one has a signing key.

Knows detections, not how they are computed.
"""

from dgmark.report.contents import REPORT_VERSION, Passage, Report, quote
from dgmark.report.files import check_report_path, write_report
from dgmark.report.page import to_html, to_json
from dgmark.report.signing import SigningKey, verify_report

__all__ = [
    "REPORT_VERSION",
    "Passage",
    "Report",
    "SigningKey",
    "check_report_path",
    "quote",
    "to_html",
    "to_json",
    "verify_report",
    "write_report",
]
