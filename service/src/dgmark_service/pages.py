"""The pages: rendered once, when the service starts; they need no build, no network and no other server."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

from dgmark.detection.sentences import RAREST, SHADED, rarity
from dgmark.report.page import Scale, template
from dgmark.rows.documents import text_suffixes

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# path: what the links between the pages call it, its template, and its scripts in the order in which they run
_PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "/": ("Check", "check", ("/common.js", "/service.js", "/check.js")),
    "/write": ("Write", "write", ("/common.js", "/service.js", "/model.js", "/writing.js", "/write.js")),
    "/mark": ("Mark", "mark", ("/common.js", "/service.js", "/model.js", "/mark.js")),
    "/verify": ("Verify", "verify", ("/common.js", "/service.js", "/verify.js")),
    "/about": ("About", "about", ()),
}


def routes(*, generates: bool, verifies: bool, fpr: float) -> APIRouter:
    """The routes of the pages and of their files.

    Args:
        generates: whether the service writes texts, which the pages Write and Mark show.
        verifies: whether the service trusts somebody's reports, such as its own, which the page Verify checks.
        fpr: the service's false-positive rate, which the pages explain.
    """
    router = APIRouter(include_in_schema=False)
    shown_if = {"/write": generates, "/mark": generates, "/verify": verifies}
    pages = {path: page for path, page in _PAGES.items() if shown_if.get(path, True)}
    links = [(f".{path}", name) for path, (name, _, _) in pages.items()]
    # the report's style is the pages' as well
    shown = {"links": links, "scale": Scale.of(fpr), "rate": rarity(fpr), "rarest": rarity(RAREST)}
    # what a browser offers to choose from: tables hold many texts, which a request does not
    shown |= {"documents": ",".join(text_suffixes()), "shaded": SHADED}
    served = {"/report.css": (files("dgmark.report").joinpath("report.css").read_bytes(), ".css")}
    for path, (_, name, scripts) in pages.items():
        page = template("dgmark_service", "page", name).render(here=f".{path}", scripts=scripts, **shown)
        served[path] = (page.encode(), ".html")
        for file in ("/page.css", "/mark.svg", *scripts):
            served[file] = (files("dgmark_service").joinpath(f"page{file}").read_bytes(), file[file.rindex(".") :])
    for path, (content, kind) in served.items():
        router.add_api_route(path, _answering(content, _KINDS[kind]), methods=["GET", "HEAD"])
    return router


def _answering(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return answer
