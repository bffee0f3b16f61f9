"""The pages: rendered once, when the service starts; they need no build, no network and no other server."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from dgmark.detection.results.sentences import SHADED
from dgmark.detection.results.words import RAREST, rarity
from dgmark.report.page import Scale, template
from dgmark.rows.documents import text_suffixes

# path: what the links between the pages call it, its template, and its scripts in the order in which they run
_PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "/": ("Check", "check", ("common", "service", "check")),
    "/write": ("Write", "write", ("common", "service", "model", "writing", "write")),
    "/mark": ("Mark", "mark", ("common", "service", "model", "mark")),
    "/verify": ("Verify", "verify", ("common", "service", "verify")),
    "/about": ("About", "about", ()),
}


def add_pages(app: FastAPI, *, generates: bool, verifies: bool, fpr: float) -> None:
    """Add the pages and their files to the application.

    Args:
        app: the application.
        generates: whether the service writes texts, which the pages Write and Mark show.
        verifies: whether the service trusts somebody's reports, such as its own, which the page Verify checks.
        fpr: the service's false-positive rate, which the pages explain.
    """
    shown_if = {"/write": generates, "/mark": generates, "/verify": verifies}
    pages = {path: page for path, page in _PAGES.items() if shown_if.get(path, True)}
    links = [(f".{path}", name) for path, (name, _, _) in pages.items()]
    shown = {"links": links, "scale": Scale.of(fpr), "rate": rarity(fpr), "rarest": rarity(RAREST)}
    # what a browser offers to choose from: tables hold many texts, which a request does not
    shown |= {"documents": ",".join(text_suffixes()), "shaded": SHADED}
    app.mount("/static", StaticFiles(packages=[("dgmark_service", "page/static")]))
    # the report's style is the pages' as well
    served = {"/report.css": (files("dgmark.report").joinpath("report.css").read_text(), "text/css")}
    for path, (_, name, scripts) in pages.items():
        page = template("dgmark_service", "page", name).render(here=f".{path}", scripts=scripts, **shown)
        served[path] = page, "text/html"
    for path, (content, kind) in served.items():
        app.add_api_route(path, _answering(content, kind), methods=["GET", "HEAD"], include_in_schema=False)


def _answering(content: str, kind: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return answer
