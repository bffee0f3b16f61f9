"""The routes of detection: what they answer, and that it is what the library finds."""

import base64
import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.errors import DgmarkError
from dgmark.report.page import to_html, to_json
from dgmark.report.signing import SigningKey, verify_report
from dgmark.report.statement import Report
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.key import WatermarkKey
from dgmark_documents.kinds import SUFFIXES, TABLES, Kind
from dgmark_service import detection_worker
from dgmark_service.detection_worker import Checker, Options
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.schemas import DetectRequest, FullAnswer, PublicAnswer, ReportRequest, VerifyAnswer
from dgmark_service.settings import ServiceSettings
from support.known_keys import known_key
from support.marked_texts import marked_ids, marked_text
from support.services import service
from support.unmarked_texts import PROSE

KEY, OTHER = known_key("one", rule="bigram"), known_key("two", rule="bigram")
COMMITMENT = KeyCommitment.of(KEY)
MARKED = marked_text(KEY, 300)
PLAIN = (PROSE / "willows.txt").read_text()[:3000]
MIXED = PLAIN + MARKED + PLAIN


def checker_of(**keys: WatermarkKey) -> Checker:
    return Checker(ServiceSettings(Path("keys")), keys, {})


CHECKER = checker_of(one=KEY, two=OTHER)


def options_of(*keys: str, public: bool = False) -> Options:
    return Options(keys, public, fpr=1e-4, service_fpr=1e-4)


def checked(text: str, *, checker: Checker = CHECKER, keys: tuple[str, ...] = ("one",), public: bool = False) -> Any:
    """The answer for a text whose spans are asked for."""
    answer = checker.detect(DetectRequest(text=text, spans=True), None, options_of(*keys, public=public))
    return json.loads(answer.content)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "commitments").mkdir()
    (folder / "commitments" / "one.json").write_text(COMMITMENT.model_dump_json())
    given: dict[str, Any] = {"signer": SigningKey.generate(), "commitments": folder / "commitments"}
    with service(folder, "one", "two", **given) as client:
        yield client


def test_a_body_that_names_a_field_twice_is_refused(client: TestClient) -> None:
    """Whoever checked it may have looked at the other one."""
    headers = {"content-type": "application/json"}
    for body in ('{"text": "one", "text": "two"}', '{"text": "one", "keys": 1, "keys": 1}'):
        answer = client.post("/v1/detect", content=body, headers=headers)
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["param"] in ("text", "keys")) == (400, True)
        assert "duplicate field" in json.dumps(error)


@pytest.mark.parametrize("fpr", [1e-4, 0.3, 1e-2, 1e-6, 1e-12])
def test_the_answer_is_the_librarys_at_the_asked_rate(client: TestClient, fpr: float) -> None:
    for text in (MARKED, PLAIN, MIXED, "Five words are too few."):
        answer = client.post("/v1/detect", json={"text": text, "key": "one", "fpr": fpr})
        assert answer.status_code == 200
        fields = answer.json()
        row = Detector(KEY, fpr=fpr).detect(text).to_row("x")
        for name in row.keys() - {"id", "spans"}:
            assert fields[name] == row[name], name
        marked = row["verdict"] == "watermarked"
        assert (fields["is_watermarked"], fields["key"], fields["form"]) == (marked, "one", "full")
        FullAnswer.model_validate(fields)
        assert "content" not in fields["text"]


def test_an_answer_for_a_key_with_sub_keys_hides_the_payload() -> None:
    key = known_key("many", subkeys=256)
    fields = checked(marked_text(key.subkey(7), 300), checker=checker_of(many=key), keys=("many",))
    FullAnswer.model_validate(fields)
    assert (fields["verdict"], fields["subkeys_tested"]) == ("watermarked", 256)
    assert "subkey" not in fields
    assert "subkeys_tested" not in checked(PLAIN)


def test_without_a_name_all_keys_are_looked_for(client: TestClient) -> None:
    fields = client.post("/v1/detect", json={"text": MARKED}).json()
    assert (fields["key"], fields["keys_tested"]) == ("one", 2)
    assert fields["p_value"] == Keyring([KEY, OTHER]).detect(MARKED).p_value
    unmarked = client.post("/v1/detect", json={"text": PLAIN}).json()
    assert (unmarked["verdict"], unmarked["key"]) == ("not_detected", None)
    assert "2 keys" in unmarked["sentence"]


@pytest.mark.parametrize("body", [{"text": ""}, {"text": " \n"}, {"token_ids": []}])
def test_an_empty_text_is_an_error_as_in_the_shell(client: TestClient, body: dict[str, object]) -> None:
    refused = client.post("/v1/detect", json=body)
    assert (refused.status_code, refused.json()["detail"]) == (422, "the text is empty")


def test_ids_are_scored_as_ids(client: TestClient) -> None:
    ids = marked_ids(KEY, 200).tolist()
    fields = client.post("/v1/detect", json={"token_ids": ids, "keys": ["one"], "include_text": True}).json()
    assert fields["p_value"] == Detector(KEY).detect(ids).p_value
    assert fields["text"]["content"] == ids
    pointed = client.post("/v1/detect", json={"token_ids": [float(one) for one in ids], "keys": ["one"]})
    assert pointed.json()["p_value"] == fields["p_value"]  # JSON has one kind of numbers
    for wrong in ([True], [5.5], ["5"], [None], [[5]], "5", {"0": 5}):
        assert client.post("/v1/detect", json={"token_ids": wrong, "key": "one"}).status_code == 400
    outside = client.post("/v1/detect", json={"token_ids": [2**30], "key": "one"})
    assert outside.status_code == 400


@pytest.mark.parametrize("public", [False, True])
def test_spans_are_characters_of_the_text_and_pay_for_all_keys(public: bool) -> None:
    text = "🦔" + MIXED
    fields = checked(text, keys=("one", "two"), public=public)
    (PublicAnswer if public else FullAnswer).model_validate(fields)
    spans = Detector(KEY, fpr=1e-4 / 2).spans(text)
    assert len(spans) == len(fields["spans"]) > 0
    for span, own in zip(fields["spans"], spans, strict=True):
        assert (span["start"], span["end"]) == (own.start, own.end)
        assert span.get("p_value") == (None if public else 2 * own.p_value)
        assert public == ({"start", "end"} == set(span))
    marked = " ".join(text[own.start : own.end] for own in spans)
    assert MARKED[40:-40] in marked
    share = len("".join(marked.split())) / len("".join(text.split()))
    assert (fields["in_part"], fields["marked_share"]) == (True, pytest.approx(share))
    assert fields["heading"].startswith("Watermark found in part (")


def test_a_key_that_finds_no_spans_has_a_verdict_without_them() -> None:
    key = known_key("positions", rule="position")
    fields = checked(PLAIN + marked_text(key, 300), checker=checker_of(one=key))
    FullAnswer.model_validate(fields)
    assert (fields["verdict"], fields["in_part"], fields["where"]) == ("watermarked", False, "")
    assert (fields.get("spans"), fields["marked_share"]) == (None, None)


@pytest.mark.parametrize(
    ("fpr", "chosen_by", "remark"),
    [
        (None, "service", ""),
        (1e-4, "service", ""),
        (0.01, "request", ", asked at a looser rate than the service's"),
        (1e-6, "request", ", asked at a stricter rate than the service's"),
    ],
)
@pytest.mark.parametrize("key", ["one", None])
def test_answers_and_reports_say_who_chose_the_rate(
    client: TestClient, fpr: float | None, chosen_by: str, remark: str, key: str | None
) -> None:
    for text in (PLAIN, MARKED):
        asked = {"text": text, "key": key, "fpr": fpr}
        answer = client.post("/v1/detect", json=asked).json()
        report = client.post("/v1/report", json={**asked, "format": "json"}).json()
        page = client.post("/v1/report", json=asked).text
        plain = "Watermark found" if text == MARKED else "No watermark found"
        assert answer["heading"] == report["heading"] == plain + remark
        assert f"</span>{html.escape(report['heading'], quote=False).replace(chr(39), '&#39;')}</h1>" in page
        assert answer["fpr"] == report["method"]["fpr"] == (fpr or 1e-4)
        assert answer["fpr_chosen_by"] == report["method"]["fpr_chosen_by"] == chosen_by
        assert report["method"]["service_fpr"] == 1e-4
        assert ("Whoever asked chose the rate" in page) == bool(remark)
        assert "before the test" not in page


def test_a_text_too_long_for_spans_has_a_verdict_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection_worker, "MAX_SPAN_CHARS", 100)
    fields = checked(MARKED)
    FullAnswer.model_validate(fields)
    assert (fields["verdict"], fields.get("spans")) == ("watermarked", None)
    assert fields["where"].startswith("Marked spans were not looked for: ")
    with pytest.raises(DgmarkError, match="spans"):
        CHECKER.report(ReportRequest(text=MARKED), None, options_of("one"))


def test_a_document_is_read_and_its_text_answered(client: TestClient) -> None:
    page = f"<html><body><p>{MARKED}</p></body></html>"
    form = {"options": json.dumps({"keys": ["one"], "include_text": True, "spans": True, "fpr": 0.001})}
    fields = client.post("/v1/detect", data=form, files={"document": ("essay.html", page)}).json()
    assert fields["verdict"] == "watermarked"
    assert fields["fpr"] == 0.001
    assert fields["document"] == {"kind": "HTML", "notes": [], "pages": None}
    assert fields["text"]["content"].split() == MARKED.split()


def test_the_page_offers_every_kind_of_document_that_holds_one_text(client: TestClient) -> None:
    (offered,) = re.findall(r'id="file"[^>]* accept="([^"]+)"', client.get("/").text)
    one_text = {suffix for suffix, kind in SUFFIXES.items() if kind not in (*TABLES, Kind.SVG)}
    assert set(offered.split(",")) == one_text >= {".txt", ".pdf", ".docx", ".pptx", ".eml"}


def test_answers_tell_what_was_left_out_of_a_document(client: TestClient) -> None:
    page = f"<html><body><img src='x.png'><p>{MARKED}</p></body></html>"
    notes = ["1 picture is left out"]
    body: dict[str, Any] = {
        "data": {"options": '{"key": "one", "spans": true}'},
        "files": {"document": ("essay.html", page)},
    }
    one = client.post("/v1/detect", **body).json()
    assert one["document"]["notes"] == notes
    assert one["heading"] == "Watermark found, in the part that was read"
    report = client.post("/v1/report", **{**body, "data": {"options": '{"key": "one", "format": "json"}'}}).json()
    assert report["notes"] == notes
    assert report["sentence"] == one["sentence"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.png", b"\x89PNG\r\n\x1a\n", "picture"),
        ("x.txt", b"   ", "no text"),
        ("../../etc/x.pdf", b"%PDF-1.7 broken", "x.pdf"),
        ("t.csv", b"id,text\nfirst,some words\nsecond,other words\n", "a table with 2 texts"),
    ],
)
def test_a_document_that_cannot_be_read_is_never_a_verdict(
    client: TestClient, name: str, content: bytes, reason: str
) -> None:
    answer = client.post("/v1/detect", files={"document": (name, content)})
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]
    assert "etc" not in answer.text


def test_what_cannot_be_checked_in_time_is_refused_before_it_begins() -> None:
    checker = checker_of(many=known_key("many", subkeys=65_536), few=known_key("few", subkeys=256))
    many, few = checker.keys["many"], checker.keys["few"]
    most = checker.most_chars(many)
    assert 300_000 < most < 400_000
    text = DetectRequest(text="a" * (most + 1))
    for asked in (text, DetectRequest(token_ids=[5] * (most // 4 + 1))):
        with pytest.raises(ErrorAnswer, match=f"would take about 60 seconds.* up to {most:,} characters"):
            checker.detect(asked, None, options_of("many"))
    with pytest.raises(ErrorAnswer, match="65,792 sub-keys"):
        checker.detect(text, None, options_of("many", "few"))
    assert checker.most_chars(few) == 10**6


def test_the_time_of_a_rotating_key_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a table of groups for each few tokens, the larger, the larger the vocabulary."""
    rotating = known_key("rotating", rotation=1)
    large = replace(rotating, spec=replace(rotating.spec, table_size=126_464))
    checker = checker_of(rotating=rotating, large=large, slow=known_key("slow", rotation=64))
    assert checker.most_chars(checker.keys["slow"]) == 10**6
    assert checker.most_chars(checker.keys["rotating"]) == 10**6
    most = checker.most_chars(large)
    assert 10_000 < most < 20_000
    monkeypatch.setattr(Detector, "detect", lambda *_: pytest.fail("it began"))
    for asked in (DetectRequest(text="a" * (most + 1)), DetectRequest(token_ids=[5] * (most // 4 + 1))):
        with pytest.raises(ErrorAnswer, match=f"making the groups of a key that rotates .* up to {most:,} characters"):
            checker.detect(asked, None, options_of("large"))


@pytest.mark.parametrize("kind", ["html", "json"])
def test_a_report_is_signed_with_the_published_key(client: TestClient, kind: str) -> None:
    answer = client.post("/v1/report", json={"text": MIXED, "key": "one", "format": kind, "name": "essay"})
    assert answer.headers["content-disposition"] == f'attachment; filename="report.{kind}"'
    jwks = client.get("/.well-known/jwks.json").json()
    assert verify_report(answer.content, jwks) == jwks["keys"][0]["kid"]
    if kind == "json":
        fields = json.loads(answer.content)
        assert (fields["name"], fields["text"]["content"]) == ("essay", MIXED)
        assert any(span["quote"][:-1] in MARKED for span in fields["spans"])
        assert fields["key_commitment"]["sha256"] == COMMITMENT.sha256
        other = client.post("/v1/report", json={"text": MIXED, "key": "two", "format": "json"}).json()
        assert "key_commitment" not in other


def test_a_report_is_verified_with_the_services_own_keys_and_those_it_trusts(tmp_path: Path) -> None:
    own, other, stranger = SigningKey.generate(), SigningKey.generate("Other"), SigningKey.generate("Stranger")
    report = Report.of(Detector(KEY), "essay", MARKED, commitment=KeyCommitment.of(KEY))
    with service(tmp_path, "one", signer=own, trusted=tuple(other.to_jwks()["keys"])) as client:

        def verify(document: bytes) -> dict[str, Any]:
            answer = client.post("/v1/report/verify", content=document)
            assert answer.status_code == 200
            return VerifyAnswer.model_validate(answer.json()).model_dump()

        for document in (to_html(report), to_json(report)):
            for signer, detail in ((own, "signed by this service, and"), (other, "signed by Other, and")):
                answer = verify(signer.sign(document))
                assert (answer["valid"], answer["own"], answer["key_id"]) == (True, signer is own, signer.key_id)
                assert answer["detail"].startswith(detail)
                assert (answer["heading"], answer["created"]) == ("Watermark found", report.created.isoformat())
                assert answer["key_commitment"]["sha256"] == KeyCommitment.of(KEY).sha256
            changed = own.sign(document).replace(b"essay", b"Essay")
            for bad, reason, key_id in (
                (document, "unsigned", None),
                (stranger.sign(document), "untrusted", stranger.key_id),
                (changed, "changed", own.key_id),
                (b"x", "unsigned", None),
            ):
                told = {"valid": False, "detail": verify(bad)["detail"], "reason": reason, "key_id": key_id}
                assert verify(bad) == VerifyAnswer.model_validate(told).model_dump()
                assert (key_id or "") in told["detail"]
        empty = client.post("/v1/report/verify", content=b"")
        assert (empty.status_code, "the body is empty" in empty.text) == (400, True)
        assert "not a report of dgmark" in verify(own.sign(b'{"signature": ""}'))["detail"]
    nameless = SigningKey.generate()
    keys = tuple(nameless.to_jwks()["keys"])
    (tmp_path / "other").mkdir()
    with service(tmp_path / "other", "one", trusted=keys) as client:
        said = client.post("/v1/report/verify", content=nameless.sign(to_json(report))).json()
        assert said["detail"] == "signed with a key whose owner this service does not name, and not changed since"


def test_reports_of_the_service_are_joined_and_others_are_refused(tmp_path: Path) -> None:
    own, other = SigningKey.generate(), SigningKey.generate()
    with service(tmp_path, "one", signer=own, trusted=tuple(other.to_jwks()["keys"])) as client:
        asked = [{"text": text, "format": "json", "name": text[:5].strip()} for text in (MARKED, PLAIN)]
        reports = [client.post("/v1/report", json=one).text for one in asked]
        for kind in ("html", "json"):
            answer = client.post("/v1/report/join", json={"reports": reports, "format": kind, "name": "two"})
            assert answer.headers["content-disposition"] == f'attachment; filename="report.{kind}"'
            assert verify_report(answer.content, own.to_jwks()) == own.key_id
            said = client.post("/v1/report/verify", content=answer.content).json()
            assert (said["heading"], said["name"]) == ("Watermark found in 1 of 2 texts", "two")
        unsigned = to_json(Report.of(Detector(KEY), "essay", PLAIN))
        for bad, status in ((other.sign(unsigned).decode(), 422), (unsigned.decode(), 422), ("{}", 422)):
            refused = client.post("/v1/report/join", json={"reports": [*reports, bad]})
            assert refused.status_code == status
        wrongs: list[dict[str, Any]] = [{}, {"reports": []}, {"reports": reports, "fpr": 0.5}, {"reports": [1]}]
        for wrong in wrongs:
            assert client.post("/v1/report/join", json=wrong).status_code == 400


def test_no_answer_holds_a_secret(client: TestClient) -> None:
    assert KEY.secret is not None
    paths = ("/v1/about", "/openapi.json", "/metrics")
    answers = [client.get(path).text for path in paths]
    answers += [client.post("/v1/detect", json={"text": MARKED, "spans": True}).text]
    for secret in (KEY.secret.hex(), base64.b64encode(KEY.secret).decode(), repr(bytes(KEY.secret))):
        assert not any(secret in answer for answer in answers)
