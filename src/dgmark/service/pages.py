"""The page: files that need no build, no network and no other server."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# path: package and file; the report's style is the page's as well
_FILES = {
    "/": ("dgmark.service", "page/check.html"),
    "/about": ("dgmark.service", "page/about.html"),
    "/page.css": ("dgmark.service", "page/page.css"),
    "/mark.svg": ("dgmark.service", "page/mark.svg"),
    "/check.js": ("dgmark.service", "page/check.js"),
    "/report.css": ("dgmark.report", "report.css"),
}


def routes() -> APIRouter:
    """The routes of the page's files."""
    router = APIRouter(include_in_schema=False)
    for path, (package, name) in _FILES.items():
        kind = _KINDS[name[name.rindex(".") :]]
        router.add_api_route(
            path, _answering(files(package).joinpath(name).read_bytes(), kind), methods=["GET", "HEAD"]
        )
    return router


def _answering(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return answer
