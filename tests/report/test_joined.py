"""A report of several texts: what it repeats, what it refuses, and how its signature and theirs hold."""

import html
import json
import re
from typing import Any

import pytest

from dgmark.detection.detector import Detector
from dgmark.errors import InputError, SignatureInvalid
from dgmark.report.joined import JoinedReport
from dgmark.report.page import to_html, to_json
from dgmark.report.signed import read_signed_report
from dgmark.report.signing import SigningKey
from dgmark.report.statement import Report
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.unmarked_texts import PROSE

KEY = known_key("joined", rule="bigram")
TEXTS = {
    'marked "A" & <b>.txt': marked_text(KEY, 250),
    "plain.txt": (PROSE / "willows.txt").read_text()[:3000],
    "short.txt": "Few.",
}


@pytest.fixture(scope="module")
def signer() -> SigningKey:
    return SigningKey.generate("ACME")


@pytest.fixture(scope="module")
def reports() -> list[bytes]:
    detector = Detector(KEY)
    return [to_json(Report.of(detector, name, text, notes=["a picture is left out"])) for name, text in TEXTS.items()]


def test_a_joined_report_repeats_what_each_report_says_without_its_text(
    signer: SigningKey, reports: list[bytes]
) -> None:
    keys = signer.to_jwks()
    joined = JoinedReport.of([signer.sign(one).decode() for one in reports], "3 documents", keys)
    assert joined.heading == "Watermark found in 1 of 3 texts"
    assert "any of them is called watermarked is at most 1 in 3,000, and" in joined.sentence  # 3 times 1 in 10,000
    fields = json.loads(to_json(joined))
    for one, single in zip(fields["reports"], map(json.loads, reports), strict=True):
        del single["text"]["content"], single["signature"], single["keys"]
        assert one == single
    page = to_html(joined).decode()
    assert "marked &#34;A&#34; &amp; &lt;b&gt;.txt" in page
    assert "<b>" not in page
    assert not any(text[:60] in page for text in TEXTS.values() if len(text) > 60)
    assert page.count("a picture is left out") == 3
    assert all(one["text"]["sha256"] in page and one["heading"] in page for one in fields["reports"])
    for document in (to_html(joined), to_json(joined)):
        said = read_signed_report(signer.sign(document), keys)
        assert (said["signer"], said["heading"], said["name"]) == ("ACME", joined.heading, "3 documents")
        assert (said["created"], said["key_fingerprint"]) == (joined.created.isoformat(), None)


def test_only_reports_of_the_signer_are_joined(signer: SigningKey, reports: list[bytes]) -> None:
    good, other = signer.sign(reports[0]).decode(), SigningKey.generate().sign(reports[1]).decode()
    changed = good.replace("watermarked", "not_detected", 1)
    for bad, reason in ((other, "untrusted"), (changed, "changed"), (reports[1].decode(), "unsigned")):
        with pytest.raises(SignatureInvalid) as refused:
            JoinedReport.of([good, bad], "two", signer.to_jwks())
        assert refused.value.reason == reason
    assert len(JoinedReport.of([reports[0].decode(), reports[1].decode()], "two", None).reports) == 2


@pytest.mark.parametrize(("names", "more"), [(["a <b>.png"], "1 more has"), (["x.zip", "y.zip"], "2 more have")])
def test_documents_without_an_answer_are_named_and_counted(reports: list[bytes], names: list[str], more: str) -> None:
    joined = JoinedReport.of([reports[0].decode()], "several", None, names)
    assert joined.heading == f"Watermark found in 1 of 1 text; {more} no answer"
    assert json.loads(to_json(joined))["unanswered"] == names
    page = to_html(joined).decode()
    assert page.count("There is no answer") == len(names)
    assert all(html.escape(name) in page for name in names)


def test_reports_of_one_text_count_once_and_a_looser_rate_is_said(reports: list[bytes]) -> None:
    looser = json.loads(reports[0])
    looser["method"] |= {"fpr": 0.5, "service_fpr": 1e-4}
    documents = [reports[0].decode()] * 20
    assert JoinedReport.of(documents, "one", None).heading == (
        "Watermark found in 1 of 1 text; 19 reports of the same texts not counted again"
    )
    assert JoinedReport.of([reports[1].decode(), json.dumps(looser)], "two", None).heading == (
        "Watermark found in 1 of 2 texts, asked at a looser rate than the service's, 1 in 2"
    )


def test_the_row_of_a_text_that_is_not_counted_again_says_so(reports: list[bytes]) -> None:
    joined = JoinedReport.of([reports[0].decode(), reports[1].decode(), reports[0].decode()], "three", None)
    page = to_html(joined).decode()
    rows = page.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]
    assert ["the heading counts both once" in row for row in rows] == [False, False, True]
    assert all(page.count(f'id="{target}"') == 1 for target in re.findall('href="#([^"]+)"', page))
    assert f"The same text as {joined.singles[0].name} above" in html.unescape(rows[2])


def test_names_in_a_statement_show_all_that_they_hold(reports: list[bytes]) -> None:
    fields = json.loads(reports[0]) | {"name": "essay\u202e\n\x07.txt"}
    joined = JoinedReport.of([json.dumps(fields)], "a\r\nb", None, ["x\u2066y", "\u202e"])
    assert (joined.name, joined.singles[0].name, joined.unanswered) == ("a b", "essay .txt", ("x y", "a text"))


def _without(field: str) -> Any:
    def change(fields: dict[str, Any]) -> None:
        del fields[field]

    return change


@pytest.mark.parametrize(
    "change",
    [
        *map(_without, ("name", "verdict", "heading", "sentence", "notes", "spans", "text", "method", "created")),
        lambda fields: fields.update(format="dgmark-joined-report"),
        lambda fields: fields.update(verdict="guilty"),
        lambda fields: fields.update(notes="none"),
        lambda fields: fields["method"].update(fpr=0),
        lambda fields: fields["text"].update(characters="many"),
    ],
)
def test_what_is_no_report_of_a_text_is_refused(reports: list[bytes], change: Any) -> None:
    fields = json.loads(reports[0])
    change(fields)
    with pytest.raises(InputError, match="not a JSON report of a text"):
        JoinedReport.of([json.dumps(fields)], "one", None)


@pytest.mark.parametrize("document", ["", "{", "[]", "null", "[" * 100_000, "\ud800"])
def test_what_is_no_json_is_refused(document: str) -> None:
    with pytest.raises(InputError, match="not a JSON report of a text"):
        JoinedReport.of([document], "one", None)


def test_among_very_many_texts_a_false_finding_is_not_called_rare(reports: list[bytes]) -> None:
    fields = json.loads(reports[1])
    fields["method"]["fpr"] = 0.3
    joined = JoinedReport.of([json.dumps(fields)] * 4, "four", None)
    assert "any of them is called watermarked is not small, and" in joined.sentence
    assert not re.search("1 in ", joined.sentence)
