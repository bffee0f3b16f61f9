"""`create_app`: the service as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dgmark.service import asking, detecting, generating, openai_routes, pages, tuning
from dgmark.service.fields import OpenAIProblem
from dgmark.service.gate import Gate
from dgmark.service.house import House
from dgmark.service.problems import answer_errors
from dgmark.service.settings import LOCAL_NAMES, ServiceSettings
from dgmark.version import __version__

TECHNIQUE = "dgMARK: watermark for the text of diffusion language models, by the order of decoding"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"content": _PROBLEM, "description": "What is wrong."},
    "5XX": {"content": _PROBLEM, "description": "Fault."},
}
_OPENAI_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": OpenAIProblem, "description": one["description"]} for status, one in _ERRORS.items()
}


def create_app(settings: ServiceSettings) -> FastAPI:
    """The service as an ASGI application. Its workers run between startup and shutdown.

    Args:
        settings: what it serves, to whom, within which limits.

    Raises:
        KeyFileError: a key or the file of tokens cannot be used, or there is no key.
        InputError: the file of tokens is none, or the audit log cannot be written.
    """
    house = House.of(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        """The workers, while the service runs."""
        pool, writer = house.open_pool(), house.open_writer()
        try:
            if writer is not None:
                await writer.start()  # models are loaded meanwhile
            await pool.start()
            yield
        finally:
            pool.close()
            if writer is not None:
                writer.close()
            house.audit.close()

    app = FastAPI(
        title="dgmark",
        summary="Checks texts for the watermark of diffusion language models, and writes texts that carry it.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=_ERRORS,
    )
    answer_errors(app)
    app.state.house = house
    app.openapi = lambda: _described(app)  # type: ignore[method-assign] # as FastAPI's own pages do it
    app.include_router(detecting.routes(house))
    if house.offers:
        app.include_router(generating.routes(house))
        app.include_router(openai_routes.routes(house), responses=_OPENAI_ERRORS)
    if house.tuned:
        app.include_router(tuning.routes(house))
    app.include_router(_operation(house))
    app.include_router(_well_known(house))
    app.include_router(pages.routes(writes=bool(house.offers), tuned=house.tuned))
    app.add_middleware(
        Gate,
        metrics=house.metrics,
        audit=house.audit,
        at_once=settings.at_once,
        body_bytes=settings.body_bytes,
        all_bytes=settings.all_bytes,
        body_seconds=settings.body_seconds,
        hosts=() if settings.tokens or settings.public else LOCAL_NAMES,
    )
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas that bodies and errors refer to."""
    if app.openapi_schema is None:
        app.openapi_schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = app.openapi_schema["components"]["schemas"]
        for name, schema in (detecting.body_schemas() | asking.body_schemas()).items():
            schemas.setdefault(name, schema)
    return app.openapi_schema


def _operation(house: House) -> APIRouter:
    """What those who run the service ask it."""
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", summary="Whether the service runs")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="Whether it can do all its work: 503 while it starts, loads a model, and stops")
    async def readyz() -> JSONResponse:
        return JSONResponse({"status": "ready" if house.ready else "not ready"}, 200 if house.ready else 503)

    @router.get("/metrics", summary="Counts for Prometheus", response_class=Response)
    async def metrics(request: Request) -> Response:
        house.callers.with_scope(request, "admin")
        return Response(generate_latest(house.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _well_known(house: House) -> APIRouter:
    """How a machine finds out what marks are checked here, and whose signature a report has."""
    router = APIRouter(tags=["discovery"])

    @router.get(
        "/.well-known/dgmark.json", summary="The technique, the keys' fingerprints, and where texts are checked"
    )
    async def discovery() -> dict[str, object]:
        """What a machine needs to know to have a text checked here."""
        return {
            "format": "dgmark-discovery",
            "version": 1,
            "technique": TECHNIQUE,
            "content": ["text/plain"],
            "detection_endpoint": "/v1/detect",
            "detection_page": "/",
            "report_endpoint": "/v1/report",
            "openapi": "/openapi.json",
            "jwks_uri": "/.well-known/jwks.json" if house.settings.signer else None,
            "key_fingerprints": [key.fingerprint for key in house.keys.values()],
            "fpr": house.settings.fpr,
            "access": "public" if house.settings.public else "token" if house.settings.tokens else "local",
            "dgmark": __version__,
        }

    @router.get("/.well-known/jwks.json", summary="The public keys that sign reports")
    async def jwks() -> dict[str, object]:
        signer = house.settings.signer
        return signer.to_jwks() if signer else {"keys": []}

    return router
