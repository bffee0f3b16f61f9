"""The pages: written once, when the service starts; they need no build, no network and no other server."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response
from jinja2 import Environment, PackageLoader, StrictUndefined

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class _Page:
    """A page.

    Attributes:
        name: what the links between the pages call it.
        template: the template of its HTML, without the ending.
        scripts: the paths of its scripts, in the order in which they run.
    """

    name: str
    template: str
    scripts: tuple[str, ...] = ()


_PAGES = {
    "/": _Page("Check", "check", ("/common.js", "/check.js")),
    "/write": _Page("Write", "write", ("/common.js", "/writing.js", "/write.js")),
    "/guess": _Page("Guess", "guess", ("/common.js", "/writing.js", "/guess.js")),
    "/about": _Page("About", "about"),
}
# of a service that writes texts
_GENERATION = ("/write", "/guess")
# path: package and file; the report's style is the pages' as well
_FILES = {
    "/page.css": ("dgmark.service", "page/page.css"),
    "/mark.svg": ("dgmark.service", "page/mark.svg"),
    "/report.css": ("dgmark.report", "report.css"),
}


def routes(*, generates: bool) -> APIRouter:
    """The routes of the pages and of their files.

    Args:
        generates: whether the service writes texts, which some of the pages show.
    """
    router = APIRouter(include_in_schema=False)
    pages = {path: page for path, page in _PAGES.items() if generates or path not in _GENERATION}
    scripts = {script: ("dgmark.service", f"page{script}") for page in pages.values() for script in page.scripts}
    served = {path: (content, _HTML) for path, content in _written(pages).items()}
    for path, (package, name) in {**_FILES, **scripts}.items():
        served[path] = (files(package).joinpath(name).read_bytes(), _KINDS[name[name.rindex(".") :]])
    for path, (content, kind) in served.items():
        router.add_api_route(path, _answering(content, kind), methods=["GET", "HEAD"])
    return router


def _written(pages: Mapping[str, _Page]) -> dict[str, bytes]:
    """The HTML of the pages, each with links to all of them."""
    environment = Environment(
        loader=PackageLoader("dgmark.service", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    links = [(path, page.name) for path, page in pages.items()]
    return {
        path: environment.get_template(f"{page.template}.html.jinja")
        .render(here=path, links=links, scripts=page.scripts)
        .encode()
        for path, page in pages.items()
    }


def _answering(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return answer
