"""`create_app`: the service as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dgmark.version import __version__
from dgmark_service import detection_routes, generation_routes, openai_routes, schemas
from dgmark_service.auth import Administering
from dgmark_service.error_handlers import answer_errors
from dgmark_service.middleware import RequestMiddleware
from dgmark_service.pages import add_pages
from dgmark_service.settings import ServiceSettings
from dgmark_service.state import ServiceState

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"content": _PROBLEM, "description": "What is wrong."},
    "5XX": {"content": _PROBLEM, "description": "Fault."},
}
_OPENAI_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.OpenAIProblem, "description": one["description"]} for status, one in _ERRORS.items()
}


def create_app(settings: ServiceSettings) -> FastAPI:
    """The service as an ASGI application. Its workers run between startup and shutdown.

    Args:
        settings: what it serves, to whom, within which limits.

    Raises:
        KeyFileError: a key or the file of tokens cannot be used, or there is no key.
        InputError: the file of tokens is none, or the audit log cannot be written.
    """
    state = ServiceState(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        """The workers, while the service runs."""
        app.openapi()  # which takes some time, and is kept
        try:
            await state.start()
            yield
        finally:
            state.close()

    app = FastAPI(
        title="dgmark",
        summary="Checks texts for the watermark of diffusion language models, and writes texts that carry it.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=_ERRORS,
    )
    answer_errors(app)
    app.state.service = state
    app.openapi = lambda: _described(app, settings)  # type: ignore[method-assign] # as FastAPI's own pages do it
    app.include_router(detection_routes.routes(state))
    if state.offers:
        app.include_router(generation_routes.routes(state))
        app.include_router(openai_routes.routes(state), responses=_OPENAI_ERRORS)
    app.include_router(_operation(state))
    verifies = bool(settings.report_keys["keys"])
    add_pages(app, generates=bool(state.offers), verifies=verifies, fpr=settings.fpr)
    app.add_middleware(RequestMiddleware, settings=settings, metrics=state.metrics)
    return app


def _described(app: FastAPI, settings: ServiceSettings) -> dict[str, Any]:
    """The OpenAPI document, with the schemas that bodies and errors refer to, and who may ask what."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for operation in (one for path in document["paths"].values() for one in path.values()):
            for body in operation.get("requestBody", {"content": {}})["content"].values():
                for schema in (body["schema"], *body["schema"].get("properties", {}).values()):
                    document["components"]["schemas"].update(schema.pop("$defs", {}))
            for needed in operation.get("security", [])[:1]:
                (scopes,) = needed.values()
                if settings.local or (settings.public and scopes in ([], ["detect"])):
                    operation["security"].insert(0, {})  # it also answers whoever has no token
        app.openapi_schema = document
    return app.openapi_schema


def _operation(state: ServiceState) -> APIRouter:
    """What those who run the service ask it."""
    router = APIRouter(tags=["operation"])

    @router.head("/healthz", include_in_schema=False)
    @router.get("/healthz", summary="Whether the service runs")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="Whether it can do all its work: 503 while it starts, loads, cannot log, or stops")
    async def readyz() -> JSONResponse:
        return JSONResponse({"status": "ready" if state.ready else "not ready"}, 200 if state.ready else 503)

    @router.get("/metrics", summary="Counts for Prometheus", response_class=Response)
    async def metrics(_: Administering) -> Response:
        return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
