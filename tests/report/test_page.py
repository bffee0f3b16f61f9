"""Reports as a page and as JSON: what they hold, and what a public one leaves out."""

import hashlib
import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.results.sentences import SHADED
from dgmark.report.page import to_html, to_json
from dgmark.report.statement import Report
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.surprisal_models import HASHED
from support.unmarked_texts import PROSE

KEY = known_key("report", rule="bigram")
MARKED = marked_text(KEY, 250)
WILLOWS = (PROSE / "willows.txt").read_text()
HOSTILE = '<script>alert(1)</script> & "quoted" <mark>not ours</mark> <meta name="dgmark-signature" content="">'


class Page(HTMLParser):
    """Collects what a browser would see."""

    VOID = ("meta", "br", "link", "img", "hr")

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.marked: list[str] = []
        self._open: list[str] = []
        self._hidden = 0
        self.feed(page.decode())
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset")]
        if tag not in self.VOID:
            self._open.append(f"{tag}.{dict(attrs).get('class')}")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().startswith(f"{tag}.")

    def handle_data(self, data: str) -> None:
        if "div.text" in self._open and not {"span.label", "span.hidden"} & set(self._open):
            self.text.append(data)
            if "mark.None" in self._open:
                self.marked.append(data)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(KEY)


@pytest.fixture(scope="module")
def text() -> str:
    return f"{WILLOWS[:900]} {HOSTILE} {MARKED} {WILLOWS[900:1500]}"


@pytest.mark.parametrize("public", [False, True])
def test_page_shows_the_exact_text_and_its_spans(detector: Detector, text: str, public: bool) -> None:
    report = Report.of(detector, HOSTILE, text, public=public)
    page = Page(to_html(report))
    assert "".join(page.text) == text
    marked = [text[span.start : span.end] for span in detector.spans(text)]
    assert page.marked == marked
    assert len(MARKED) * 0.9 < sum(len(one) for one in marked if one in MARKED)
    assert report.quote(report.spans[0]).startswith(" ".join(marked[0].split())[:100])
    # it needs no script and no network
    assert not page.links
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert page.tags.count("main") == 1


def test_json_repeats_the_detection(detector: Detector, text: str) -> None:
    detection = detector.detect(text)
    report = Report.of(detector, "a.txt", text, detection=detection)
    fields = json.loads(to_json(report))
    assert fields["verdict"] == detection.verdict == "watermarked"
    share = report.detection.marked_share or 0
    assert 0.4 < share < 0.6
    assert fields["marked_share"] == fields["evidence"]["marked_share"] == share
    assert f"Watermark found in part ({int(100 * share)}% of the text)" in to_html(report).decode()
    assert fields["evidence"] == report.detection.to_row("a.txt")
    expected = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "characters": len(text), "content": text}
    assert fields["text"] == expected
    assert fields["signature"] == ""
    assert (fields["format"], fields["version"]) == ("dgmark-report", 1)


@pytest.mark.parametrize(
    ("fpr", "chosen_by", "said"),
    [(1e-4, "default", "kept the default rate of dgmark"), (0.05, "person", "chose the rate, perhaps knowing")],
)
def test_a_report_says_who_chose_its_rate(fpr: float, chosen_by: str, said: str) -> None:
    report = Report.of(Detector(KEY, fpr=fpr), "a.txt", WILLOWS[:2000])
    method = json.loads(to_json(report))["method"]
    assert (method["fpr"], method["fpr_chosen_by"], method["service_fpr"]) == (fpr, chosen_by, None)
    assert f"Whoever made this report {said}" in to_html(report).decode()
    assert report.heading == "No watermark found"


def test_public_report_leaves_out_what_guides_removal(detector: Detector, text: str) -> None:
    private = Report.of(detector, "a.txt", text)
    public = Report.of(detector, "a.txt", text, public=True)

    def names(fields: Any) -> set[str]:
        if isinstance(fields, dict):
            return set(fields).union(*map(names, fields.values()))
        return set().union(*map(names, fields)) if isinstance(fields, list) else set()

    secret = {"p_value", "z_score", "num_tokens_matched", "green_fraction", "evidence"}
    assert secret <= names(private.to_fields())
    assert not secret & names(public.to_fields())
    numbers = [f"{private.detection.p_value:.3g}", f"{private.detection.counts[1]:,} of"]
    assert all(number in to_html(private).decode() for number in numbers)
    assert not any(number in to_html(public).decode() for number in numbers)
    assert public.sentence in to_html(public).decode()


def test_matching_tokens_are_shaded_where_a_language_model_weighs_them() -> None:
    text = f"{WILLOWS[:600]}\n\n{HOSTILE} {MARKED}"
    weighed = Report.of(Detector(KEY, surprisal_model=HASHED), "a.txt", text)
    public = Report.of(Detector(KEY, surprisal_model=HASHED), "a.txt", text, public=True)
    counted = Report.of(Detector(KEY), "a.txt", text)
    assert weighed.shades
    page = to_html(weighed).decode()
    shown = re.findall(r'<span class="shade-(\d)">(.*?)</span>', page, flags=re.DOTALL)
    expected = [(str(shade.level), text[shade.start : shade.end]) for shade in weighed.shades]
    assert [(level, html.unescape(part)) for level, part in shown] == expected
    for report in (weighed, public, counted):
        assert "".join(part for parts, _ in report.pieces() for part, _ in parts) == text
    weighed_page, public_page = (Page(to_html(one)) for one in (weighed, public))
    assert "".join(weighed_page.marked) == "".join(public_page.marked)
    for report in (public, counted):
        assert 'class="shade' not in to_html(report).decode()
    assert (SHADED in page, SHADED in to_html(counted).decode()) == (True, False)


def test_a_report_of_a_key_that_finds_no_spans_says_nothing_of_them() -> None:
    key = known_key("positions", rule="position")
    report = Report.of(Detector(key), "a.txt", marked_text(key, 250))
    assert report.heading == "Watermark found"
    fields = json.loads(to_json(report))
    assert (fields["spans"], fields["marked_share"]) == (None, None)
    assert "span of" not in fields["sentence"]
    page = to_html(report).decode()
    assert not Page(page.encode()).marked
    assert "Marked spans" not in page
    assert "single span" not in page


@pytest.mark.parametrize(
    ("content", "verdict"), [(WILLOWS[:6000], "not_detected"), ("Too short.", "uncertain"), ("", "uncertain")]
)
def test_other_verdicts(detector: Detector, content: str, verdict: str) -> None:
    report = Report.of(detector, "a.txt", content)
    assert report.detection.verdict == verdict
    assert not report.spans
    assert "".join(Page(to_html(report)).text) == content
    assert "Watermark found" not in to_html(report).decode()


def test_undone_disguise_is_said() -> None:
    disguised = "\u200b".join(marked_text(KEY, 250))
    report = Report.of(Detector(KEY, normalise=("invisible",)), "a.txt", disguised)
    assert report.detection.verdict == "watermarked"
    assert report.detection.marked_share
    assert len(report.spans) == 1
    assert "cleaned of disguises" in to_html(report).decode()


def test_the_method_states_how_many_sub_keys_were_tested() -> None:
    key = known_key("report", subkeys=128)
    text = marked_text(key.subkey(5), 80)
    for public in (False, True):
        fields = Report.of(Detector(key), "a", text, public=public).to_fields()
        assert fields["method"]["subkeys_tested"] == 128
        assert "subkey" not in {*fields["method"], *fields.get("evidence", {})}


def test_the_numbers_stand_beside_what_chance_would_give_and_say_where_they_end(detector: Detector) -> None:
    text = WILLOWS[:500] + MARKED * 3
    report = Report.of(detector, "essay", text)
    page = to_html(report).decode()
    (span,) = report.spans
    _, matched, scored = report.detection.counts
    chance = round(scored / 2)
    assert report.by_chance == (chance, chance)
    assert chance < matched
    assert f"{matched:,} of {scored:,}; by chance about {chance:,} would match" in page
    named = re.search(r"Characters ([\d,]+) to ([\d,]+)", page)
    assert named
    first, last = (int(one.replace(",", "")) for one in named.groups())
    assert text[first - 1 : last] == text[span.start : span.end]
    assert "Characters are counted from 1" in page
    assert "this text<br>1 in 1,000 trillion<" in page
    assert "Chances are told down to 1 in 1,000 trillion." in page
    assert "beyond the right end of the scale" in page
    assert re.search(r'class="here" style="left: 100(\.0+)?%', page)
    assert "beyond the right end" not in to_html(Report.of(detector, "essay", WILLOWS[:2000])).decode()
