"""The pages: files that need no build, no network and no other server."""

from collections.abc import Awaitable, Callable, Iterable
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# path: package and file; the report's style is the pages' as well
_FILES = {
    "/": ("dgmark.service", "page/check.html"),
    "/about": ("dgmark.service", "page/about.html"),
    "/page.css": ("dgmark.service", "page/page.css"),
    "/mark.svg": ("dgmark.service", "page/mark.svg"),
    "/common.js": ("dgmark.service", "page/common.js"),
    "/check.js": ("dgmark.service", "page/check.js"),
    "/report.css": ("dgmark.report", "report.css"),
}


# of a service that writes texts
_WRITING = {
    "/write": ("dgmark.service", "page/write.html"),
    "/guess": ("dgmark.service", "page/guess.html"),
    "/writing.js": ("dgmark.service", "page/writing.js"),
    "/write.js": ("dgmark.service", "page/write.js"),
    "/guess.js": ("dgmark.service", "page/guess.js"),
}
_TITLES = {"/": "Check", "/write": "Write", "/guess": "Guess", "/about": "About"}
_PLACE = b'<nav aria-label="Pages"></nav>'


def routes(*, writes: bool) -> APIRouter:
    """The routes of the pages' files.

    Args:
        writes: whether the service writes texts, which some of the pages show.
    """
    router = APIRouter(include_in_schema=False)
    served = {**_FILES, **(_WRITING if writes else {})}
    for path, (package, name) in served.items():
        kind = _KINDS[name[name.rindex(".") :]]
        content = files(package).joinpath(name).read_bytes().replace(_PLACE, _links(path, served))
        router.add_api_route(path, _answering(content, kind), methods=["GET", "HEAD"])
    return router


def _links(here: str, served: Iterable[str]) -> bytes:
    """The links between the pages that are served."""
    current = {here: ' aria-current="page"'}
    links = [
        f'<a href="{path}"{current.get(path, "")}>{title}</a>' for path, title in _TITLES.items() if path in served
    ]
    return f'<nav aria-label="Pages">{"".join(links)}</nav>'.encode()


def _answering(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return answer
