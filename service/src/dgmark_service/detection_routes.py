"""The routes that check texts, and make and verify reports. Bodies are JSON, or a form with a document."""

import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from dgmark.detection.expected import tokens_needed
from dgmark.errors import DgmarkError, SignatureInvalid
from dgmark.report.joined import JoinedReport, joined_to_html, joined_to_json
from dgmark.report.signed import read_signed_report
from dgmark.report.signing import SigningKey
from dgmark.version import __version__
from dgmark_service import schemas
from dgmark_service.auth import Anybody, Caller, Detecting
from dgmark_service.bodies import json_body, json_or_form_body, read_json, read_json_or_form
from dgmark_service.detection_worker import Answer, Checker, Options, Upload
from dgmark_service.error_answers import ErrorAnswer, Refused
from dgmark_service.error_handlers import problem_of
from dgmark_service.generation_task import unless_gone
from dgmark_service.offers import Offer
from dgmark_service.settings import ServiceSettings
from dgmark_service.state import ServiceState

T = TypeVar("T", schemas.DetectRequest, schemas.ReportRequest)

# what the public form may choose: anything else would make its verdict a number
_PUBLIC_FIELDS = {"key", "keys", "text", "texts", "spans", "include_text", "name", "format"}
_BYTES = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
_KINDS = {"html": "text/html; charset=utf-8", "json": "application/json"}


def routes(state: ServiceState) -> APIRouter:
    """The routes of detection."""
    router = APIRouter(tags=["detection"])

    @router.get("/v1/about", summary="What the service holds, and which form you get")
    async def about(caller: Anybody) -> schemas.About:
        """The keys, limits and models, and what your token lets you do: any valid token is enough."""
        return _about(state, caller)

    @router.post(
        "/v1/detect",
        summary="Check one text, several, the token ids of one response, or one document",
        response_model=schemas.FullAnswer | schemas.PublicAnswer | schemas.ListAnswer,
        openapi_extra=json_or_form_body(schemas.DetectRequest),
    )
    async def detect(request: Request, caller: Detecting) -> Response:
        """The verdict, in the form that your token gives."""
        _, answer = await _checked(state, request, caller, schemas.DetectRequest, Checker.detect)
        return Response(answer.content, media_type="application/json")

    @router.post(
        "/v1/report",
        summary="Make the signed report of one text or document",
        response_class=Response,
        responses={200: {"content": {"text/html": {}, "application/json": {}}, "description": "The report."}},
        openapi_extra=json_or_form_body(schemas.ReportRequest),
    )
    async def report(request: Request, caller: Detecting) -> Response:
        """The report as a page or as JSON, signed if the service has a signing key."""
        asked, answer = await _checked(state, request, caller, schemas.ReportRequest, Checker.report)
        signer = state.settings.signer
        content = await run_in_threadpool(signer.sign, answer.content) if signer else answer.content
        return _file(content, asked.format)

    @router.post(
        "/v1/report/join",
        summary="Make one signed report of several reports of this service",
        response_class=Response,
        responses={200: {"content": {"text/html": {}, "application/json": {}}, "description": "The report."}},
        openapi_extra=json_body(schemas.JoinRequest),
    )
    async def join(request: Request, _: Detecting) -> Response:
        """A table of what the reports found. If the service signs, it takes only reports that it signed itself."""
        asked = await read_json(request, schemas.JoinRequest)
        joined = await run_in_threadpool(_joined, asked, state.settings.signer)
        state.audit.note(request, "join", reports=len(asked.reports))
        return _file(joined, asked.format)

    @router.get("/.well-known/jwks.json", summary="The public keys that sign reports")
    async def jwks() -> dict[str, object]:
        signer = state.settings.signer
        return signer.to_jwks() if signer else {"keys": []}

    if state.settings.report_keys["keys"]:

        @router.post(
            "/v1/report/verify",
            summary="Say who signed a report, and whether it was changed since",
            openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": _BYTES}}},
        )
        async def verify(request: Request, _: Detecting) -> schemas.VerifyAnswer:
            """The body is the file of the report, as it was downloaded."""
            document = await request.body()
            if not document:
                raise ErrorAnswer(400, "the body is empty: send the file of the report", param="body")
            verified = await run_in_threadpool(_verified, document, state.settings)
            state.audit.note(request, "verify", valid=verified.valid, signature_key=verified.key_id)
            return verified

    return router


def _file(report: bytes, kind: str) -> Response:
    """A report, to be kept."""
    return Response(
        report,
        media_type=_KINDS[kind],
        headers={"content-disposition": f'attachment; filename="report.{kind}"'},
    )


def _joined(asked: schemas.JoinRequest, signer: SigningKey | None) -> bytes:
    joined = JoinedReport.of(asked.reports, asked.name, signer.to_jwks() if signer else None, asked.unanswered)
    content = (joined_to_html if asked.format == "html" else joined_to_json)(joined)
    return signer.sign(content) if signer else content


def _about(state: ServiceState, caller: Caller) -> schemas.About:
    settings = state.settings
    return schemas.About(
        dgmark=__version__,
        keys=[
            schemas.KeyFields(
                name=name,
                key_name=key.name,
                key_fingerprint=key.fingerprint,
                tokenizer=key.spec.tokenizer,
                expected_match=key.spec.expected_match,
                tokens_needed=tokens_needed(key.spec, settings.fpr),
                max_chars=state.workers.shared.most_chars(key),
            )
            for name, key in caller.own(state.keys).items()
        ],
        fpr=settings.fpr,
        form=None if not caller.checks else "public" if caller.public else "full",
        signed=settings.signer is not None,
        max_chars=state.workers.shared.most_chars(),
        body_bytes=settings.body_bytes,
        models=[_model(state, caller, offer) for offer in state.offers.values()],
        may_generate=bool(state.offers) and "generate" in caller.scopes,
        takes_tokens=settings.needs_token and caller.name is None,
        token=caller.name,
        sample=settings.sample,
    )


def _verified(document: bytes, settings: ServiceSettings) -> schemas.VerifyAnswer:
    try:
        report = read_signed_report(document, settings.report_keys)
    except SignatureInvalid as error:
        return schemas.VerifyAnswer(valid=False, detail=str(error), reason=error.reason, key_id=error.key_id)
    own = settings.signer is not None and settings.signer.key_id == report["key_id"]
    signer = report["signer"] or ("this service" if own else None)
    signed = f"by {signer}" if signer else "with a key whose owner this service does not name"
    return schemas.VerifyAnswer(valid=True, detail=f"signed {signed}, and not changed since", own=own, **report)


def _model(state: ServiceState, caller: Caller, offer: Offer) -> schemas.ModelFields:
    facts = state.model_facts(offer.source.name)
    return schemas.ModelFields(
        name=offer.source.name,
        ready=facts is not None,
        **(asdict(facts) if facts else {}),
        keys=list(caller.own(offer.marking.keys)),
        policy=offer.policy,
    )


def _options(state: ServiceState, caller: Caller, asked: schemas.TextToCheck) -> Options:
    """How a text is checked, with keys that the caller may use."""
    known = caller.own(state.keys)
    named = asked.keys or ([asked.key] if asked.key is not None else list(known))
    for name in named:
        if name not in known:
            raise ErrorAnswer(400, f"there is no key {name!r} here: /v1/about names the keys", param="key")
    if not named:
        raise Refused(403, "this access token is for keys that the service does not have: tell the operator")
    keys = tuple(dict.fromkeys(named))
    own = state.settings.fpr
    if caller.public:
        # each key has the same share whichever are named, so that a choice of keys is no choice of the rate
        own *= len(keys) / len(state.keys)
    fpr = own if asked.fpr is None else asked.fpr
    return Options(keys, caller.public, fpr, own, asked.phase, asked.max_crop, tuple(asked.normalise))


async def _checked(
    state: ServiceState, request: Request, caller: Caller, model: type[T], work: Callable[..., Answer]
) -> tuple[T, Answer]:
    """What a request about one text, or a list of texts, asks for, and the answer of a worker.

    Raises:
        ErrorAnswer: the body is damaged, the texts are too long together, or the public form does not let a field be
            chosen.
        ValidationError: a field is wrong or unknown.
        DgmarkError: see `_answer`.
    """
    state.auth.check_seconds(caller)
    asked, upload = await read_json_or_form(request, model)
    if caller.public:
        for name in sorted(asked.model_fields_set - _PUBLIC_FIELDS):
            raise Refused(403, f"{name} can be chosen only with a token of the scope detect:full", param=name)
    options, texts = _options(state, caller, asked), getattr(asked, "texts", None)
    if texts is None:
        return asked, await _answer(request, caller, work, asked, upload, options)
    if sum(map(len, texts)) > state.settings.max_chars:
        detail = f"the texts have more than {state.settings.max_chars:,} characters, which is all that one request "
        raise ErrorAnswer(413, f"{detail}may have", param="texts")
    state.auth.count(caller, len(texts) - 1)
    answers = []
    for text in texts:
        one = asked.model_copy(update={"text": text, "texts": None})
        try:
            answers.append((await _answer(request, caller, work, one, None, options)).content)
        except DgmarkError as error:
            answers.append(json.dumps({"error": problem_of(error, request)}).encode())
    return asked, Answer(b'{"results":[' + b",".join(answers) + b"]}", "")


async def _answer(
    request: Request, caller: Caller, work: Callable[..., Answer], asked: T, upload: Upload | None, options: Options
) -> Answer:
    """The answer of a worker about one text, which is counted and logged. Who leaves before its turn gives it up.

    Raises:
        ErrorAnswer: a stranger's time is used up.
        ClientDisconnect: nobody waits for it any more.
        DgmarkError: see `Turns.place` and `WorkerPool.run`.
    """
    state: ServiceState = request.app.state.service
    async with AsyncExitStack() as stack:
        turn = state.turns.place(stranger=caller.stranger)
        if not await unless_gone(request, stack.enter_async_context(turn)):
            raise ClientDisconnect
        state.auth.check_seconds(caller)  # others of the same caller may have used them up meanwhile
        began = time.monotonic()
        try:
            answer: Answer = await state.workers.run(work, asked, upload, options)
        finally:
            state.auth.spend_seconds(caller, time.monotonic() - began)
    state.metrics.verdicts.labels(answer.verdict).inc()
    what, form = request.scope["route"].path.removeprefix("/v1/"), "public" if caller.public else "full"
    tried = [state.keys[name] for name in options.keys if name in state.keys]
    state.audit.note(request, "check", tried, path=what, form=form, fpr=options.fpr)
    return answer
