"""The pages in a browser: Check, Write, Mark and Verify, also on a phone, in the dark and where something fails.

Skipped without a browser, except for what the page Mark asks for.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dgmark.report.signing import SigningKey, verify_report
from dgmark_service.app import create_app
from dgmark_service.settings import ModelSource, ServiceSettings
from dgmark_service.token_file import TokenFile
from support.browser import check, running_browser, watched_page
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.services import bearer, key_folder, listening, wait_for
from support.unmarked_texts import PROSE

pytestmark = pytest.mark.slow

PLAIN = (PROSE / "willows.txt").read_text()[:900]
NAMED = replace(known_key("one", rule="bigram"), name="ACME")
MARKED = marked_text(NAMED, 150)
SIGNER = SigningKey.generate("ACME Trust Services")
EVENTS = {"content-type": "text/event-stream"}
PAGES = ("write", "mark", "verify")
COUNT = "() => document.querySelectorAll('#marked .cell:not(.blank)').length"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = key_folder(tmp_path_factory.mktemp("pages"), "two")
    NAMED.save(keys / "one.json")
    model = ModelSource({"name_or_path": "storyteller", "device": "cpu"})
    settings = ServiceSettings(keys, workers=1, signer=SIGNER, models=(model,), generate_keys=("one",))
    app = create_app(settings)
    with listening(app) as address:
        wait_for(lambda: app.state.service.ready)
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    with running_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page Check, or the one that a mark `page` names."""
    with watched_page(browser, address) as page:
        page.set_default_timeout(60_000)
        page.goto(address + getattr(request, "param", "/"))
        yield page


writing, marking, verifying = (pytest.mark.parametrize("page", [f"/{name}"], indirect=True) for name in PAGES)


@pytest.fixture(params=[("light", 1200), pytest.param(("dark", 320), marks=pytest.mark.soak)], ids=str)
def look(request: pytest.FixtureRequest, page: Any) -> None:
    """The page as it looks on a screen in the light, and on a phone in the dark."""
    scheme, width = request.param
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 800})


looks = pytest.mark.usefixtures("look")


def assert_sound(page: Any) -> None:
    """Axe-core finds no fault, however little, and the page scrolls one way only."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def copied(page: Any, button: str) -> Any:
    """What a button copies."""
    page.click(button)
    page.wait_for_selector("text=Copied.")
    return page.evaluate("navigator.clipboard.readText()")


def downloaded(page: Any, button: str, file: Path) -> bytes:
    """What a button downloads, which is kept in a file."""
    with page.expect_download() as download:
        page.click(button)
    download.value.save_as(file)
    return file.read_bytes()


def forget_faults(page: Any) -> None:
    """Expect the faults that the browser has reported; its last report may come after the page's own."""
    page.wait_for_timeout(100)
    page.faults.clear()


def ask(page: Any, text: str) -> None:
    """Ask for a text by the button."""
    page.fill("#text", text)
    page.click("#submit")


def marked(page: Any) -> list[str]:
    script = "one => [...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data).join('')"
    return [mark.evaluate(script) for mark in page.query_selector_all("#scored mark")]


def test_a_text_is_checked_and_its_span_shown(page: Any) -> None:
    text = f"🦔 {PLAIN}{MARKED}{PLAIN}"
    check(page, text)
    assert re.fullmatch(r"Watermark of ACME found in part \(\d+% of the text\)", page.inner_text("#heading"))
    said = r"A span of this text \(\d+% of it\) carries the watermark of ACME\. "
    assert re.match(said, page.inner_text("#sentence"))
    assert "chosen by the assistant of ACME" in page.inner_text("#meaning")
    assert NAMED.fingerprint not in page.inner_text("#verdict") + page.inner_text("#meaning")
    assert NAMED.fingerprint in page.inner_text("#facts")
    assert "✓" not in page.inner_text("body")
    spans = marked(page)
    assert sum(len(span) for span in spans if span in MARKED) > len(MARKED) / 2
    assert page.inner_text("#spans").count("chance without the key at most 1 in ") == len(spans)
    assert page.evaluate("document.activeElement.id") == "verdict"
    assert page.inner_text("#facts").count("\n") >= 4
    answer = copied(page, "text=Copy the answer")
    assert page.inner_text("#sentence") in answer
    assert "SHA-256" in answer


def test_matching_tokens_are_shaded_where_a_language_model_weighs_them(page: Any) -> None:
    text = f"🦔 {PLAIN}{MARKED}{PLAIN}"
    shades: list[dict[str, int]] = []

    def answer(route: Any) -> None:
        fields = route.fetch().json()
        (span,) = fields["spans"]
        start = span["start"]
        shades[:] = [{"start": start + 10 * n, "end": start + 10 * n + 4, "level": n + 1} for n in range(3)]
        route.fulfill(json={**fields, "shades": shades})

    page.route("**/v1/detect", answer)
    check(page, text)
    script = "all => all.map(one => [one.className, one.textContent])"
    shown = page.eval_on_selector_all("#scored mark [class^=shade]", script)
    assert shown == [[f"shade-{one['level']}", text[one["start"] : one["end"]]] for one in shades]
    labels = "[...box.querySelectorAll('.hidden, .label')].forEach(one => one.remove())"
    assert page.eval_on_selector("#scored", f"box => {{ {labels}; return box.textContent; }}") == text
    assert "tokens that match are shaded" in page.inner_text("#about-text")
    assert_sound(page)


def test_the_scale_shows_where_the_text_lies_and_moves_no_verdict(page: Any) -> None:
    for text, side in ((PLAIN, "left"), (MARKED, "right")):
        check(page, text)
        pin, line = (page.locator(f"#{name}").bounding_box()["x"] for name in ("pin", "threshold"))
        assert (pin < line) == (side == "left")
        here, pin = (page.locator(f"#{name}").bounding_box() for name in ("here", "pin"))
        assert here["x"] - 1 <= pin["x"] + pin["width"] / 2 <= here["x"] + here["width"] + 1  # of a pixel
        assert page.query_selector("#result input") is None
        assert page.inner_text("#here").split("\n")[1] in page.get_attribute("#scale", "aria-label")
    assert "that this service was started with (1 in 10,000)" in page.inner_text("#sureness")
    ticks = page.eval_on_selector_all(".tick", "all => all.map(one => one.getBoundingClientRect().x)")
    assert [right - left for left, right in pairwise(ticks)] == pytest.approx([(ticks[6] - ticks[0]) / 6] * 6, abs=1)


def test_a_verdict_has_the_screen_and_a_print_has_no_words_of_the_screen(page: Any) -> None:
    page.set_viewport_size({"width": 1200, "height": 800})
    height = page.locator("#text").bounding_box()["height"]
    check(page, MARKED)
    assert page.locator("#text").bounding_box()["height"] < height / 2
    assert page.locator("#verdict").bounding_box()["y"] + page.evaluate("scrollY") < 800
    page.emulate_media(media="print")
    shown = page.inner_text("body")
    assert shown.lstrip().startswith("●")
    assert "Paste a text" not in shown
    page.emulate_media(media="screen")
    page.focus("#text")
    assert page.locator("#text").bounding_box()["height"] == height


def test_without_javascript_nothing_looks_as_if_it_worked(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for name in ("", *PAGES):
        page.goto(f"{address}/{name}")
        assert page.is_visible("noscript")
        assert page.locator("#form :is(button, input, textarea, select):enabled").count() == 0
    context.close()


def test_a_reload_asks_before_it_loses_a_text(page: Any) -> None:
    asked: list[str] = []

    def dismiss(dialog: Any) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.click("#text")
    page.once("dialog", dismiss)
    with page.expect_navigation():
        page.evaluate("location.reload()")  # of nothing that was entered
    page.wait_for_function("() => typeof service !== 'undefined' && service !== null")
    assert not asked
    page.click("#text")
    page.fill("#text", PLAIN)
    page.evaluate("location.reload()")
    page.wait_for_timeout(300)
    assert asked == ["beforeunload"]
    assert page.input_value("#text") == PLAIN


def test_a_document_is_checked_and_its_report_is_signed(page: Any, tmp_path: Path) -> None:
    document = tmp_path / "essay.html"
    document.write_text(f"<html><body><p>{MARKED}</p></body></html>")
    page.set_input_files("#file", document)
    assert page.is_hidden("#text")
    page.click("#submit")
    page.wait_for_selector("#result:not([hidden])")
    assert page.inner_text("#heading") == "Watermark of ACME found"
    assert "essay.html" in page.inner_text("#about-text")
    for kind in ("html", "json"):
        verify_report(downloaded(page, f"[data-format={kind}]", tmp_path / f"report.{kind}"), SIGNER.to_jwks())
    fields = json.loads((tmp_path / "report.json").read_bytes())
    assert (fields["name"], fields["verdict"]) == ("essay.html", "watermarked")


def test_several_documents_are_a_table_and_each_shows_its_answer(page: Any, tmp_path: Path) -> None:
    marked, scan = f"<p>{MARKED}</p><img src='x.png'>", "\x89PNG\r\n\x1a\n"
    contents = {"a.html": marked, "b.txt": PLAIN * 2, "c.png": scan, "d.txt": "Few."}
    for name, content in contents.items():
        (tmp_path / name).write_text(content, "latin-1")
    answers = iter([429, 200, 200, 200, 200])

    def limited(route: Any) -> None:
        wait = next(answers) == 429
        route.fulfill(status=429, headers={"retry-after": "1"}, json={}) if wait else route.continue_()

    page.route("**/v1/detect", limited)
    page.set_input_files("#file", [tmp_path / name for name in contents])
    assert "4 documents" in page.inner_text("#chosen")
    page.click("#submit")
    page.wait_for_selector("text=going on in 1 seconds")
    page.wait_for_selector("text=4 documents were checked.")
    rows = [row.inner_text().split("\t") for row in page.query_selector_all("#rows tr")]
    assert [name for name, _ in rows] == list(contents)
    found, absent, picture, short = (answer for _, answer in rows)
    assert found.startswith("● Watermark of ACME found, in the part that was read")
    assert "1 picture is left out" in found
    assert (absent, short) == ("○ No watermark found", "? Inconclusive")
    assert picture.startswith("There is no answer")
    assert "is a picture" in picture
    assert page.is_hidden("#result")
    assert_sound(page)
    assert "b.txt\t○ No watermark found" in copied(page, "text=Copy the table")
    for kind in ("html", "json"):
        verify_report(downloaded(page, f"[data-joined={kind}]", tmp_path / f"report.{kind}"), SIGNER.to_jwks())
        page.wait_for_selector("text=The report of 4 documents was downloaded. It names 1 without an answer.")
    fields = json.loads((tmp_path / "report.json").read_bytes())
    assert fields["heading"] == "Watermark found in 1 of 3 texts; 1 more has no answer"
    assert (fields["name"], fields["unanswered"]) == ("4 documents", ["c.png"])
    named = ["a.html", "b.txt", "d.txt"]
    assert [(one["name"], one["heading"]) for one in fields["reports"]] == [
        (name, answer.split("\n")[0][2:]) for name, answer in rows if name in named
    ]
    page.click("#rows button >> text=b.txt")
    assert (page.inner_text("#name"), page.inner_text("#heading")) == ("b.txt", "No watermark found")
    forget_faults(page)  # the browser reports the answers 422 and 429
    with page.context.new_page() as verifying:
        verifying.goto(page.url + "verify")
        verifying.set_input_files("#file", tmp_path / "report.html")
        verifying.wait_for_selector("#verdict.watermarked")
        assert fields["heading"] in verifying.inner_text("#facts")
        assert "the report names one for each text" in verifying.inner_text("#facts")
        verifying.goto((tmp_path / "report.html").as_uri())
        assert_sound(verifying)


def test_a_check_of_many_documents_is_stopped(page: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PLAIN)
    page.route("**/v1/detect", lambda route: route.fulfill(status=429, headers={"retry-after": "999"}, json={}))
    page.set_input_files("#file", [tmp_path / "a.txt"] * 2)
    page.click("#submit")
    page.wait_for_selector("text=going on in 999 seconds")
    page.click("#stop")
    page.wait_for_selector("text=Stopped.")
    assert page.is_hidden("#problem")
    forget_faults(page)


@verifying
@pytest.mark.parametrize("kind", ["html", "json"])
def test_the_page_names_who_signed_a_report_and_when(page: Any, address: str, tmp_path: Path, kind: str) -> None:
    signed = httpx2.post(f"{address}/v1/report", json={"text": MARKED, "format": kind, "name": "essay"}).content
    (tmp_path / "signed").write_bytes(signed)
    page.set_input_files("#file", tmp_path / "signed")
    page.wait_for_selector("#verdict.watermarked")
    assert page.inner_text("#heading") == "Signed by ACME Trust Services, and not changed since"
    facts = page.inner_text("#facts")
    for said in ("Watermark of ACME found", "essay", "UTC, by the clock of", SIGNER.key_id, "names no commitment"):
        assert said in facts
    page.set_viewport_size({"width": 320, "height": 800})
    assert_sound(page)


def test_a_text_that_is_a_page_stays_a_text(page: Any) -> None:
    hostile = f"<img src=x onerror=alert(1)><script>document.title='x'</script>{PLAIN}"
    check(page, hostile)
    assert page.text_content("#scored") == hostile
    assert page.query_selector("#scored img, #scored script") is None


def test_a_failure_is_never_a_verdict(page: Any, tmp_path: Path) -> None:
    check(page, MARKED)
    assert page.is_visible("#result")
    picture = tmp_path / "scan.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    page.set_input_files("#file", picture)
    page.click("#submit")
    page.wait_for_selector("#problem:not([hidden])")
    assert "is a picture" in page.inner_text("#problem")
    assert page.is_hidden("#result")
    page.click("#remove")
    check(page, "")
    assert "no text yet" in page.inner_text("#problem")
    forget_faults(page)  # the browser reports the answer 422


@looks
def test_axe_finds_no_fault_and_a_phone_scrolls_one_way(page: Any) -> None:
    check(page, f"{PLAIN}{MARKED} {'x' * 300}")
    assert_sound(page)
    check(page, "")
    assert_sound(page)
    page.goto(f"{page.url}about")
    assert_sound(page)


def event(name: str, **fields: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n"


def steps(pieces: Sequence[str], order: Sequence[int]) -> str:
    """The events of a text whose pieces are committed one by one."""
    length = max(len(pieces), len(order))
    start = event("start", length=length, block_length=length)
    return start + "".join(
        event("step", step=step, block=0, positions=[place], tokens=[place], pieces=[(*pieces, *[""] * 9)[place]])
        for step, place in enumerate(order)
    )


def done(pieces: Sequence[str], text: str, *, marked: bool = True) -> str:
    mark = {"enabled": marked, "key_id": "one" if marked else None}
    usage = {"completion_tokens": len(pieces)}
    return event("done", text=text, usage=usage, num_denoising_steps=len(pieces), watermark=mark)


def answer_with(page: Any, body: str, status: int = 200, headers: dict[str, str] = EVENTS) -> None:
    """Let the next texts be these events, whatever is asked for."""
    page.unroute_all()
    page.route("**/v1/generate", lambda route: route.fulfill(status=status, headers=headers, body=body))


def write(page: Any) -> None:
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")


def filled(page: Any, step: int) -> list[int]:
    """The places that are filled in the marked text after a step of the replay."""
    page.evaluate(
        """step => { const slider = document.getElementById("step"); slider.value = step;
            slider.dispatchEvent(new Event("input")); }""",
        step,
    )
    script = "all => all.flatMap((one, place) => one.classList.contains('blank') ? [] : [place])"
    return list(page.eval_on_selector_all("#marked .cell", script))


@writing
def test_two_texts_fill_in_the_order_of_decoding_and_one_is_checked(page: Any) -> None:
    page.wait_for_selector("#small-model:not([hidden])")
    page.select_option("#length", "64")
    page.evaluate(
        """() => { window.heard = [];
            new MutationObserver(() => heard.push(document.getElementById("status").textContent))
                .observe(document.getElementById("status"), {childList: true}); }"""
    )
    # noted as it happens: on a busy machine the text is whole before this test asks again
    page.evaluate(
        f"""() => {{ window.counts = [];
            new MutationObserver(() => counts.push(({COUNT})()))
                .observe(document.getElementById("marked"), {{childList: true, subtree: true, attributes: true}}); }}"""
    )
    write(page)
    page.wait_for_selector("#replay:not([hidden])")
    assert page.evaluate("counts.some(n => n > 3 && n < 61)")  # it is shown live
    assert copied(page, "#marked [data-copy]") == page.text_content("#marked .canvas")
    assert page.evaluate(COUNT) == 64
    assert len(page.evaluate("heard")) <= 7  # a screen reader hears quarters, not words
    assert page.evaluate("document.querySelectorAll('.canvas[aria-live], [aria-live] .canvas').length") == 0
    tokens = r"64 tokens in 64 steps and [\d.]+ seconds, "
    assert re.fullmatch(tokens + r"marked with the key ACME \(one\)", page.inner_text("#marked .facts-line"))
    assert re.fullmatch(tokens + "not marked", page.inner_text("#unmarked .facts-line"))
    assert page.inner_text("#marked h2") == "With the watermark"
    said = page.inner_text("#marked .verdict").removeprefix("● It will be found. ")
    assert page.is_hidden("#unmarked .verdict")

    early, late = filled(page, 8), filled(page, 16)
    assert (len(early), len(late), len(filled(page, 64))) == (8, 16, 64)
    assert set(early) < set(late)
    assert late != list(range(16))  # not from left to right
    assert page.get_attribute("#step", "aria-valuetext") == "step 64 of 64"
    whole = page.text_content("#marked .canvas")
    page.keyboard.press("Tab")
    page.focus("#play")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.getElementById('step-words').textContent === 'step 3 of 64'")
    page.keyboard.press("Enter")
    assert page.inner_text("#play") == "Play"

    page.click("#marked .check button")
    page.wait_for_selector("#result:not([hidden])")
    assert page.inner_text("#heading") == "Watermark of ACME found"
    assert page.inner_text("#sentence") == said
    prompt = "Once upon a time there was a little fox who"
    assert whole == prompt + re.sub(r"start of marked \d+| end of marked \d+ ", "", page.text_content("#scored"))


@writing
@looks
@pytest.mark.parametrize(
    ("checked", "heading", "sentence"),
    [
        (None, "It will not be found", "The watermark of ACME was not found in this text"),
        (503, "It is not known whether it will be found", "The worker was lost."),
        (403, "It is not known whether it will be found", "Checking texts needs an access token with the scope detect"),
    ],
)
def test_only_a_text_that_is_found_is_one_with_the_watermark(
    page: Any, checked: int | None, heading: str, sentence: str
) -> None:
    words = [f" {word}" for word in PLAIN.split()]
    answer_with(page, steps(words, range(len(words))) + done(words, "".join(words)))
    if checked == 503:
        page.route("**/v1/detect", lambda route: route.fulfill(status=503, json={"detail": "the worker was lost"}))
    elif checked == 403:  # a token with the scope generate alone
        page.wait_for_function("() => service")
        page.evaluate("service.form = null")
    page.uncheck("#twin")
    write(page)
    page.wait_for_selector("#replay:not([hidden])")
    assert page.inner_text("#marked .verdict")[2:].startswith(f"{heading}. {sentence}")
    assert page.inner_text("#marked h2") == "Written with the key"
    assert "with the watermark" not in page.inner_text("#marked").lower()
    assert_sound(page)
    assert any(url.endswith("/v1/detect") for url in page.asked) == (checked != 403)
    # a text that is found next has no word of this one
    page.unroute_all()
    page.evaluate("service.form = 'full'")
    answer_with(page, steps(["a"], [0]) + done(["a"], MARKED))
    write(page)
    page.wait_for_selector("#marked .verdict >> text=It will be found.")
    assert page.inner_text("#marked h2") == "With the watermark"
    if checked == 503:
        forget_faults(page)  # the browser reports the answer


@writing
def test_stop_leaves_what_is_written_and_frees_the_place(page: Any, address: str) -> None:
    page.select_option("#length", "256")
    write(page)
    page.wait_for_function(f"() => ({COUNT})() > 5")
    page.focus("#stop")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.getElementById('status').textContent === 'Stopped.'")
    assert 5 < page.evaluate(COUNT) < 250
    assert page.evaluate("document.activeElement.id") == "submit"
    assert page.is_hidden("#replay")
    assert page.is_hidden("#marked .check")
    for _ in range(100):
        if re.search(r"^dgmark_texts_held 0", held := httpx2.get(f"{address}/metrics").text, re.MULTILINE):
            break
        page.wait_for_timeout(50)
    else:
        pytest.fail(held)


@writing
def test_a_failure_before_the_first_word_is_told_in_one_place(page: Any) -> None:
    problem = {"detail": "the service has more to do than it can: try again in 3 seconds", "request_id": "abc"}
    answer_with(page, json.dumps(problem), 429, {"content-type": "application/problem+json"})
    page.click("#submit")
    page.wait_for_selector("#problem:not([hidden])")
    assert "The service has more to do than it can: try again in 3 seconds." in page.inner_text("#problem")
    assert "Request abc" in page.inner_text("#problem")
    assert page.is_hidden("#result")
    assert page.get_attribute("#submit", "aria-disabled") == "false"
    answer_with(page, json.dumps({"detail": "an access token is needed"}), 401, {})
    page.click("#submit")
    page.wait_for_selector("#token-field:not([hidden])")
    page.unroute_all()
    page.route("**/v1/generate", lambda route: route.abort())
    page.click("#submit")
    page.wait_for_function("() => document.getElementById('problem').textContent.includes('cannot be reached')")
    forget_faults(page)  # the browser reports the failed requests


@writing
def test_a_failure_in_the_middle_is_told_beside_what_is_written(page: Any) -> None:
    begun = steps([" one", " two", " three"], [1])
    for rest, told in (
        (event("error", detail="the model worker ended", status=503), "The model worker ended."),
        ("", "The connection ended before the text did."),
    ):
        answer_with(page, begun + rest)
        write(page)
        page.wait_for_selector("#marked .problem:not([hidden])")
        assert told in page.inner_text("#marked .problem")
        assert page.evaluate(COUNT) == 1
        assert page.is_hidden("#marked .check")
        assert page.is_hidden("#replay")
    page.fill("#prompt", " ")
    write(page)
    assert "nothing to continue" in page.inner_text("#problem")


def describe(page: Any, **changes: Any) -> None:
    """Let the service say this of its model, and of whoever asks."""
    allowed = changes.pop("may_generate", True)
    model = {"name": "other", "ready": True, "context_length": 300, "chat": False, "policy": "default", **changes}
    page.unroute_all()
    about = {"models": [model], "keys": [], "may_generate": allowed, "form": "full", "takes_tokens": not allowed}
    page.route("**/v1/about", lambda route: route.fulfill(json=about))


def test_where_every_text_is_marked_none_is_written_without(page: Any, address: str) -> None:
    describe(page, policy="enforced", chat=True)
    asked: list[Any] = []
    events = steps([" a", " b"], [1, 0]) + done([" a", " b"], " a b")

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(headers=EVENTS, body=events)

    page.route("**/v1/generate", answer)
    page.goto(f"{address}/write")
    page.wait_for_selector("#twin-field", state="hidden")
    write(page)
    page.wait_for_selector("#replay:not([hidden])")
    (body,) = asked
    assert body["watermark"] is True
    assert "seed" not in body
    assert [message["role"] for message in body["messages"]] == ["user"]  # the model answers messages
    assert page.is_hidden("#unmarked")
    assert page.is_hidden("#small-model")
    assert page.text_content("#marked .canvas") == " a b"
    describe(page, may_generate=False)
    page.goto(f"{address}/write")
    page.wait_for_selector("#token-field:not([hidden])")
    assert "scope generate" in page.inner_text("#token-note")
    assert page.is_hidden("#problem")  # nothing was asked
    page.click("#submit")
    assert "scope generate. Enter yours above." in page.inner_text("#problem")


@writing
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["The", " fox", " ran"], "The fox ran"),
        (["The", "fox", "ran"], "The fox ran"),  # tokenizers that write the space at the front of a text only
        (["Caf", "�", "�"], "Café"),  # a letter of two tokens
        (["a", "\n\n", "<b>b</b>"], "a\n\n<b>b</b>"),
    ],
)
def test_the_finished_text_is_the_services_own(page: Any, pieces: list[str], text: str) -> None:
    answer_with(page, steps(pieces, [2, 0, 1, 4, 3]) + done(pieces, text))  # two tokens lie behind the end
    write(page)
    page.wait_for_selector("#replay:not([hidden])")
    assert page.text_content("#marked .canvas") == "Once upon a time there was a little fox who" + text
    assert page.query_selector("#marked .canvas b") is None
    filled(page, 0)
    assert page.evaluate(COUNT) == 0


@writing
@looks
def test_axe_finds_no_fault_while_a_text_is_written(page: Any) -> None:
    pieces = [f" word{number}" for number in range(40)]
    answer_with(page, steps(pieces, [*range(20, 40), *range(20)]) + done(pieces, "".join(pieces)))
    write(page)
    page.wait_for_selector("#replay:not([hidden])")
    assert_sound(page)
    filled(page, 20)
    assert_sound(page)
    style = "getComputedStyle(document.querySelector('#marked .cell.new')).transitionDuration"
    assert page.evaluate(style) == "0s"


def test_a_text_is_marked_as_the_page_asks_for_it(address: str) -> None:
    asked = {"model": "storyteller", "text": PLAIN, "share": 0.25, "keep": [], "watermark": {"key_id": "one"}}
    marked = httpx2.post(f"{address}/v1/infill", json=asked, timeout=60).raise_for_status().json()
    words = zip(PLAIN.split(" "), marked["text"].split(" "), strict=True)
    changed = sum(old != new for old, new in words)
    assert changed == pytest.approx(marked["changed"] * marked["usage"]["total_tokens"])
    assert 0 < marked["changed"] <= marked["masked"] == pytest.approx(0.25, abs=0.01)
    assert 0 < marked["p_value"] < 1 > marked["expected_p"] > 0
    assert marked["watermark"]["key_id"] == "one"


@marking
def test_a_text_is_marked_and_shown_before_and_after(page: Any) -> None:
    text = f"<b>Toad</b>\n\n  was busy.\n{PLAIN}\n"
    page.fill("#text", text)
    page.fill("#keep", "river\n\nMole")
    page.select_option("#share", "0.5")
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#result:not([hidden])")
    marked = page.text_content("#after-text")
    assert page.text_content("#before-text") == text != marked
    assert page.query_selector(".text b") is None
    assert re.match(r"<b>Toad</b>\n\n  \w+ \w+\.\n", marked)
    assert marked.count("river") >= text.count("river") > 0
    before, after = (page.eval_on_selector_all(one, "all => all.map(one => one.textContent)") for one in ("del", "ins"))
    assert page.inner_text("#status") == f"{len(after)} words were changed."
    pairs = zip(text.split(" "), marked.split(" "), strict=True)
    assert len(after) == sum(old != new for old, new in pairs)
    assert all(old != new and (old + new).isalpha() for old, new in zip(before, after, strict=True))
    for tag, line in (("del", "line-through"), ("ins", "underline")):  # not by colour alone
        assert page.eval_on_selector(tag, "one => getComputedStyle(one).textDecorationLine") == line
    assert re.search(r"Masked\t[45]\d\.\d % of the tokens\nChanged\t", page.inner_text("#facts"))
    assert "p-value" not in page.inner_text("#result")
    found = page.inner_text("#heading") == "It will be found"
    assert found or page.inner_text("#heading") == "It will not be found"
    assert page.inner_text("#after-title") == ("After, with the watermark" if found else "After")
    assert page.is_visible("text=carries the mark of the key, and never who wrote it") == found
    assert copied(page, "text=Copy the new text") == marked
    said = page.inner_text("#sentence")
    page.click("#check")
    page.wait_for_selector("#meaning li")
    assert (page.input_value("#text"), page.input_value("#key")) == (marked, "one")
    assert ("Watermark of ACME found" in page.inner_text("#heading")) == found
    assert said.endswith(page.inner_text("#sentence"))


@marking
def test_the_page_says_beforehand_whether_a_text_will_be_found(page: Any) -> None:
    page.wait_for_selector("#outlook >> text=/Texts of about [0-9,]+ words or more will probably be found/")
    page.select_option("#share", "0.1")
    page.fill("#text", PLAIN)
    said = f"This text will probably not be found: it has {len(PLAIN.split())} words, and about "
    assert page.inner_text("#outlook").startswith(said)
    page.select_option("#share", "0.5")
    assert page.inner_text("#outlook").startswith("This text is long enough to be found")
    options = page.eval_on_selector_all("#share option", "all => all.map(one => one.value)")
    assert options == [*page.evaluate("service.keys[0].tokens_needed_by_share"), "1"]


@marking
def test_a_text_that_cannot_be_marked_is_refused_in_the_words_of_the_service(page: Any) -> None:
    refused = {" ": "There is no text yet", "THE SEA": "No word of this text may be replaced: words in small"}
    for text, told in refused.items():
        ask(page, text)
        page.wait_for_selector(f"#problem >> text={told}")
        assert page.is_hidden("#result")
    forget_faults(page)  # the browser reports the answer 422


@looks
def test_axe_finds_no_fault_in_a_marked_text(page: Any, address: str) -> None:
    describe(page, ready=False, keys=["one", "two"])
    asked: list[Any] = []
    figures = {"masked": 0.5, "changed": 0.25, "expected_p": 1e-5, "p_value": 0.021, "watermark": {"key_id": "two"}}

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(headers=EVENTS, body=event("done", text="The lake is calm.", **figures))

    page.goto(f"{address}/mark")
    page.select_option("#key", "two")
    ask(page, "The sea is calm.")
    page.wait_for_selector("text=The model is being loaded")
    describe(page, keys=["one", "two"])
    page.route("**/v1/infill", answer)
    missed = {"verdict": "uncertain", "symbol": "?", "sentence": "It is too short.", "rarity": "1 in 40"}
    page.route("**/v1/detect", lambda route: route.fulfill(json={**missed, "is_watermarked": False, "in_part": False}))
    page.wait_for_selector("#result:not([hidden])")
    shown = {"model": "other", "text": "The sea is calm.", "share": 0.25, "keep": [], "watermark": {"key_id": "two"}}
    assert asked == [{**shown, "stream": True}]
    assert (page.inner_text("del"), page.inner_text("ins")) == ("sea", "lake")
    for figure in ("50.0 %", "25.0 %", "1 in 40", "two"):
        assert figure in page.inner_text("#facts")
    assert page.inner_text("#sentence").startswith("50.0 % of the text was replaced, which is too little here.")
    assert_sound(page)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A public service that writes, and a token for each scope."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens.json"
    scopes = {"detect": ["detect"], "generate": ["generate"], "full": ["detect:full"]}
    held = {name: TokenFile(tokens).add(name, some) for name, some in scopes.items()}
    model = ModelSource({"name_or_path": "storyteller", "device": "cpu"})
    settings: dict[str, Any] = {"models": (model,), "generate_keys": ("one", "two"), "tokens": tokens, "public": True}
    app = create_app(ServiceSettings(key_folder(folder, "one", "two", "three"), workers=1, signer=SIGNER, **settings))
    with listening(app) as address:
        wait_for(lambda: app.state.service.ready)
        yield address, held


@pytest.fixture
def visitor(browser: Any, guarded: tuple[str, dict[str, str]]) -> Iterator[Any]:
    """A page of the guarded service, without a token; `page.home` is its address."""
    with watched_page(browser, guarded[0]) as page:
        page.set_default_timeout(60_000)
        page.home, page.held = guarded
        yield page


def note_of(page: Any, words: str) -> None:
    """Wait until the field for the token says this."""
    page.wait_for_function("words => document.getElementById('token-note').textContent === words", arg=words)


def enter(page: Any, token: str) -> None:
    """Fill the field for the token, which stands behind its name where none is needed."""
    page.wait_for_selector("#token-field:not([hidden])")
    if page.is_hidden("#token"):
        page.click("#token-field > summary")
    page.fill("#token", token)


def give(page: Any, token: str) -> None:
    enter(page, token)
    page.keyboard.press("Tab")


def test_a_token_with_the_scope_generate_alone_writes_and_can_be_replaced_and_removed(visitor: Any) -> None:
    visitor.goto(f"{visitor.home}/write")
    note_of(visitor, "Writing texts needs an access token with the scope generate.")
    assert visitor.is_hidden("#problem")  # nothing was asked
    assert visitor.is_hidden("#remove-token")
    give(visitor, "dgm_wrong")
    note_of(visitor, "This access token is not valid here, or no longer: ask the operator for another.")
    assert visitor.get_attribute("#token", "aria-invalid") == "true"
    assert_sound(visitor)
    visitor.click("#submit")
    visitor.wait_for_selector("#problem >> text=This access token is not valid here")
    forget_faults(visitor)  # the browser reports the answers 401
    give(visitor, visitor.held["full"])
    note_of(visitor, "This access token is valid, but this page needs one with the scope generate.")
    give(visitor, visitor.held["generate"])
    note_of(visitor, "This token is in use.")
    assert visitor.get_attribute("#token", "aria-invalid") == "false"
    visitor.select_option("#length", "64")
    visitor.click("#submit")
    visitor.wait_for_selector("#replay:not([hidden])")
    visitor.reload()
    note_of(visitor, "This token is in use.")
    visitor.click("#remove-token")
    note_of(visitor, "Writing texts needs an access token with the scope generate.")
    assert visitor.evaluate("sessionStorage.length") == 0
    visitor.reload()
    note_of(visitor, "Writing texts needs an access token with the scope generate.")


def test_each_page_says_what_it_needs_before_anything_is_asked(visitor: Any) -> None:
    full = "With one of the scope detect:full it"
    said = {
        "/": f"This page answers without a token. {full} shows numbers as well.",
        "/verify": f"This page answers without a token. {full} answers as often as you ask.",
        "/mark": "Marking texts needs an access token with the scopes generate and detect:full.",
    }
    for path, words in said.items():
        visitor.goto(visitor.home + path)
        note_of(visitor, words)
        assert visitor.is_hidden("#problem")
    give(visitor, visitor.held["generate"])
    note_of(visitor, "This access token is valid, but this page needs one with the scopes generate and detect:full.")
    assert visitor.is_hidden("#problem")
    ask(visitor, PLAIN)
    visitor.wait_for_selector("#problem >> text=this page needs one with the scopes generate and detect:full")


def test_with_public_a_token_of_another_scope_still_checks_and_verifies(visitor: Any, tmp_path: Path) -> None:
    visitor.goto(visitor.home)
    give(visitor, visitor.held["generate"])
    note_of(visitor, "This token is in use.")
    check(visitor, MARKED)
    assert "Watermark found" in visitor.inner_text("#heading")
    assert "p-value" not in visitor.inner_text("#facts")
    assert "a key whose owner this service does not name, key one, fingerprint" in visitor.inner_text("#facts")
    (tmp_path / "report").write_bytes(b"x")
    visitor.goto(f"{visitor.home}/verify")
    visitor.set_input_files("#file", tmp_path / "report")
    visitor.wait_for_selector("#heading >> text=Not signed")


def test_a_page_without_a_token_says_that_it_needs_one_and_forgets_one_that_was_withdrawn(
    browser: Any, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    held = TokenFile(tokens).add("one", ["detect"])
    with (
        listening(create_app(ServiceSettings(key_folder(tmp_path, "one"), workers=1, tokens=tokens))) as address,
        watched_page(browser, address) as page,
    ):
        page.goto(address)
        note_of(page, "Checking texts needs an access token with the scope detect or detect:full.")
        assert page.is_hidden("#problem")
        check(page, MARKED)
        assert "detect or detect:full. Enter yours above." in page.inner_text("#problem")
        page.fill("#token", held)
        check(page, MARKED)
        assert page.inner_text("#heading") == "Watermark found"
        TokenFile(tokens).remove("one")
        check(page, MARKED)
        assert "This access token is not valid here" in page.inner_text("#problem")
        assert page.is_hidden("#result")
        page.reload()
        note_of(page, "Checking texts needs an access token with the scope detect or detect:full.")
        forget_faults(page)  # the browser reports the answers 401


def test_a_key_that_was_chosen_stays_chosen_when_a_token_is_entered(visitor: Any, tmp_path: Path) -> None:
    visitor.goto(visitor.home)
    visitor.wait_for_selector("#key-field:not([hidden])")
    visitor.select_option("#key", "two")
    visitor.fill("#text", PLAIN)
    assert visitor.is_hidden("#token")
    enter(visitor, visitor.held["full"])
    with visitor.expect_request("**/v1/detect") as asked:
        visitor.click("#submit")
    assert (asked.value.post_data_json["key"], visitor.input_value("#key")) == ("two", "two")
    visitor.wait_for_selector("#result:not([hidden])")
    assert "key two, fingerprint" in visitor.inner_text("#facts")
    fields = json.loads(downloaded(visitor, "[data-format=json]", tmp_path / "report.json"))
    two = known_key("two", rule="bigram")
    assert (fields["method"]["keys_tested"], fields["key_fingerprint"]) == (1, two.fingerprint)
    # and a key that is gone is not taken for any key
    service = visitor.evaluate("service")
    service["keys"] = [key for key in service["keys"] if key["name"] != "two"]
    visitor.route("**/v1/about", lambda route: route.fulfill(json=service))
    give(visitor, visitor.held["detect"])
    visitor.wait_for_selector("#problem >> text=“two”, which was chosen, is not offered any more: choose again.")


LITTLE = "Toad Mole Rat Otter Badger Weasel Stoat Ferret Portly Sea saw Toad. " * 12


@marking
def test_a_text_that_can_hardly_be_marked_is_not_said_to_carry_the_mark(page: Any) -> None:
    ask(page, LITTLE)
    page.wait_for_selector("#heading >> text=It will not be found")
    told = page.inner_text("#sentence")
    masked = re.match(r"Only (\d\.\d) % of the text could be replaced\. Capitalised words, numbers", told)
    assert masked
    assert f"Masked\t{masked[1]} % of the tokens" in page.inner_text("#facts")
    assert page.inner_text("#after-title") == "After"
    assert page.is_hidden("#carries")
    said = page.inner_text("#result").lower()
    assert "p-value" not in said
    assert "with the watermark" not in said
    assert_sound(page)
    page.click("#check")
    page.wait_for_selector("#meaning li")
    assert "found" not in page.inner_text("#heading").replace("No watermark of ACME found", "")
    assert told.endswith(page.inner_text("#sentence"))


@marking
def test_a_text_that_is_marked_is_said_to_be_found_under_the_key_that_marked_it(page: Any) -> None:
    """The text that the model would give has the mark for certain, and the page has it checked for real."""
    answer = {"text": MARKED, "masked": 1.0, "changed": 0.9, "expected_p": 1e-9, "p_value": 1e-9}
    body = event("done", **answer, watermark={"key_id": "one"})
    page.route("**/v1/infill", lambda route: route.fulfill(headers=EVENTS, body=body))
    page.fill("#text", PLAIN)
    page.select_option("#share", "1")
    page.click("#submit")
    page.wait_for_selector("#heading >> text=It will be found")
    said = page.inner_text("#sentence")
    assert said.startswith("This text carries the watermark of ACME. The chance")
    assert page.inner_text("#after-title") == "After, with the watermark"
    assert page.is_visible("#carries")
    with page.expect_request("**/v1/detect") as asked:
        page.click("#check")
    assert asked.value.post_data_json["key"] == "one"
    page.wait_for_selector("#meaning li")
    assert page.inner_text("#sentence") == said


@marking
def test_a_marked_text_whose_check_fails_is_shown_without_a_verdict(page: Any) -> None:
    page.route("**/v1/detect", lambda route: route.fulfill(status=503, json={"detail": "the worker was lost"}))
    ask(page, PLAIN)
    page.wait_for_selector("#heading >> text=It is not known whether it will be found")
    assert page.inner_text("#sentence") == "The worker was lost."
    assert page.text_content("#after-text")
    assert page.inner_text("#after-title") == "After"
    forget_faults(page)  # the browser reports the answer 503


@verifying
def test_a_report_that_does_not_hold_says_what_is_wrong_and_names_the_key(
    page: Any, address: str, tmp_path: Path
) -> None:
    stranger, asked = SigningKey.generate(), {"text": MARKED, "key": "one", "name": "essay"}
    signed, as_page = (
        httpx2.post(f"{address}/v1/report", json={**asked, "format": kind}).content for kind in ("json", "html")
    )
    unsigned, no_longer = re.sub(rb'"signature": "[^"]+"', b'"signature": ""', signed), SIGNER.key_id
    for content, heading, words in (
        (unsigned, "Not signed", ""),
        (stranger.sign(unsigned), "Signed with a key that is not trusted here", stranger.key_id),
        (signed.replace(b"watermarked", b"not_detected", 1), "Changed after it was signed", no_longer),
        (SIGNER.sign(b'{"signature": ""}'), "Signed, but not a report", SIGNER.key_id),
        (as_page.replace(b"essay", b"Essay"), "Changed after it was signed", f"key {no_longer} does not hold"),
    ):
        (tmp_path / "report").write_bytes(content)
        page.set_input_files("#file", tmp_path / "report")
        page.wait_for_selector(f"#heading >> text={heading}")
        assert words in page.inner_text("#sentence")
        assert page.is_hidden("#stated")
        assert_sound(page)


@looks
def test_numbers_are_in_words_stand_beside_chance_and_say_where_they_end(page: Any) -> None:
    text = f"🦔 {PLAIN}{MARKED * 2}{PLAIN}"
    check(page, text)
    facts = page.inner_text("#facts")
    assert "1 in 10,000, set when the service was started" in facts
    assert not re.search(r"\de-\d", re.sub(r"p-value\t\S+", "", facts))
    matched, scored, low, high = (
        int(one.replace(",", ""))
        for one in re.findall(r"pairs\t([\d,]+) of ([\d,]+); by chance about ([\d,]+) to ([\d,]+) would match", facts)[
            0
        ]
    )
    assert round(scored / 2) == low < high < matched
    spans = marked(page)
    places = re.findall(r"Characters ([\d,]+) to ([\d,]+); chance", page.inner_text("#spans"))
    assert [text[int(first.replace(",", "")) - 1 : int(last.replace(",", ""))] for first, last in places] == spans
    assert page.is_visible("text=Characters are counted from 1")
    assert "Chances are told down to 1 in 1,000 trillion." in page.inner_text("#sureness")
    assert page.is_hidden("#beyond") == ("1 in 1,000 trillion" not in page.inner_text("#here"))
    check(page, marked_text(NAMED, 900))
    assert page.inner_text("#here") == "this text\n1 in 1,000 trillion"
    assert page.is_visible("#beyond")
    box = page.locator("#here").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.viewport_size["width"]
    assert_sound(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_box_that_scrolls_shows_it_and_one_that_does_not_does_not(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)

    def edge() -> bytes:
        """The lowest rows of the box, left of its letters and right of its corner."""
        page.locator("#scored").scroll_into_view_if_needed()
        box = page.locator("#scored").bounding_box()
        low = {"x": int(box["x"]) + 12, "y": int(box["y"] + box["height"]) - 9, "width": 8, "height": 6}
        return bytes(page.screenshot(clip=low))

    check(page, PLAIN[:200])
    assert page.is_hidden("#scrolls")
    bare = edge()
    check(page, PLAIN * 6)
    assert page.is_visible("#scrolls")
    assert edge() != bare
    page.evaluate("document.getElementById('scored').scrollTop = 1e6")
    page.wait_for_timeout(100)
    assert edge() == bare


def test_the_public_page_takes_a_token_and_then_shows_the_numbers(browser: Any, tmp_path: Path) -> None:
    token = bearer(tmp_path / "tokens.json", "full", "detect:full")["authorization"].removeprefix("Bearer ")
    settings = ServiceSettings(
        key_folder(tmp_path, "one"), workers=1, tokens=tmp_path / "tokens.json", public=True, root_path="/marks"
    )
    with listening(create_app(settings)) as address, watched_page(browser, f"{address}/marks/") as page:
        page.goto(f"{address}/marks/")
        check(page, MARKED)
        assert "p-value" not in page.inner_text("#facts")
        enter(page, token)
        check(page, MARKED)
        assert "p-value" in page.inner_text("#facts")
