"""The routes that check texts, and make and verify reports. Bodies are JSON, or a form with a document."""

import json
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from dgmark.detection.statistics.expected import tokens_needed
from dgmark.errors import DgmarkError
from dgmark.report.signing import SigningKey
from dgmark.version import __version__
from dgmark_service import schemas
from dgmark_service.auth import Anybody, Caller, Detecting
from dgmark_service.bodies import json_body, json_or_form_body, read_json, read_json_or_form
from dgmark_service.detection_worker import Answer, Checker, Options, Upload
from dgmark_service.error_answers import ErrorAnswer, Refused
from dgmark_service.error_handlers import answer_to
from dgmark_service.offers import Offer
from dgmark_service.state import ServiceState
from dgmark_service.waiting import in_worker

T = TypeVar("T", schemas.DetectRequest, schemas.ReportRequest)

# what the public form may choose: anything else would make its verdict a number
_PUBLIC_FIELDS = {"key", "keys", "text", "texts", "spans", "include_text", "name", "format"}
# of a text, as the page Mark offers them; all that may be replaced is hardly less than half
_SHARES = ("0.1", "0.25", "0.5")
_BYTES = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
_KINDS = {"html": "text/html; charset=utf-8", "json": "application/json"}
# what an answer with a report is
_REPORT: Any = {
    "response_class": Response,
    "responses": {200: {"content": {"text/html": {}, "application/json": {}}, "description": "The report."}},
}


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
        _, answer = await _checked(state, request, caller, schemas.DetectRequest)
        return Response(answer.content, media_type="application/json")

    _add_reports(router, state)
    return router


def _add_reports(router: APIRouter, state: ServiceState) -> None:
    """Add the routes of reports, and of the keys that sign them."""

    @router.post(
        "/v1/report",
        summary="Make the signed report of one text or document",
        openapi_extra=json_or_form_body(schemas.ReportRequest),
        **_REPORT,
    )
    async def report(request: Request, caller: Detecting) -> Response:
        """The report as a page or as JSON, signed if the service has a signing key."""
        asked, answer = await _checked(state, request, caller, schemas.ReportRequest)
        return await _file(answer.content, asked.format, state.settings.signer)

    @router.post(
        "/v1/report/join",
        summary="Make one signed report of several reports of this service",
        openapi_extra=json_body(schemas.JoinRequest),
        **_REPORT,
    )
    async def join(request: Request, _: Detecting) -> Response:
        """A table of what the reports found. If the service signs, it takes only reports that it signed itself."""
        asked = await read_json(request, schemas.JoinRequest)
        signer = state.settings.signer
        joined = await in_worker(request, Checker.join, asked, signer.to_jwks() if signer else None)
        state.audit.note(request, "join", reports=len(asked.reports))
        return await _file(joined, asked.format, signer)

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
            own = state.settings.signer and state.settings.signer.key_id
            found = await in_worker(request, Checker.verify, document, state.settings.report_keys, own)
            state.audit.note(request, "verify", valid=found.valid, signature_key=found.key_id)
            return found


async def _file(report: bytes, kind: str, signer: SigningKey | None) -> Response:
    """A report, to be kept, signed if there is a key."""
    return Response(
        await run_in_threadpool(signer.sign, report) if signer else report,
        media_type=_KINDS[kind],
        headers={"content-disposition": f'attachment; filename="report.{kind}"'},
    )


def _about(state: ServiceState, caller: Caller) -> schemas.About:
    settings, shares = state.settings, _SHARES if state.offers else ()
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
                tokens_needed_by_share={
                    share: tokens_needed(key.spec, settings.fpr, refilled=float(share)) for share in shares
                },
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


def _model(state: ServiceState, caller: Caller, offer: Offer) -> schemas.ModelFields:
    facts = state.model_process.facts.get(offer.source.name)
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
    of_rules = tuple(asked.model_dump(include={"phase", "max_crop"}, exclude_none=True).items())
    return Options(keys, caller.public, fpr, own, of_rules, tuple(asked.normalise))


async def _checked(state: ServiceState, request: Request, caller: Caller, model: type[T]) -> tuple[T, Answer]:
    """What a request about one text, or a list of texts, asks for, and the answer of a worker."""
    state.auth.check_seconds(caller)
    asked, upload = await read_json_or_form(request, model)
    if caller.public:
        for name in sorted(asked.model_fields_set - _PUBLIC_FIELDS):
            raise Refused(403, f"{name} can be chosen only with a token of the scope detect:full", param=name)
    options, texts = _options(state, caller, asked), getattr(asked, "texts", None)
    if texts is None:
        return asked, await _answer(request, asked, upload, options)
    if sum(map(len, texts)) > state.settings.max_chars:
        detail = f"the texts have more than {state.settings.max_chars:,} characters, which is all that one request "
        raise ErrorAnswer(413, f"{detail}may have", param="texts")
    state.auth.count(caller, len(texts) - 1, before=1)
    answers = []
    for text in texts:
        single = asked.model_copy(update={"text": text, "texts": None})
        try:
            answers.append((await _answer(request, single, None, options)).content)
        except DgmarkError as error:
            answers.append(json.dumps({"error": answer_to(error, request).problem(request.state.request_id)}).encode())
    return asked, Answer(b'{"results":[' + b",".join(answers) + b"]}", "")


async def _answer(request: Request, asked: T, upload: Upload | None, options: Options) -> Answer:
    """The answer of a worker about one text, which is counted and logged; see `in_worker` for what is raised."""
    state: ServiceState = request.app.state.service
    work = Checker.report if isinstance(asked, schemas.ReportRequest) else Checker.detect
    answer = await in_worker(request, work, asked, upload, options)
    state.metrics.verdicts.labels(answer.verdict).inc()
    what, form = request.scope["route"].path.removeprefix("/v1/"), "public" if options.public else "full"
    tried = [state.keys[name] for name in options.keys if name in state.keys]
    state.audit.note(request, "check", tried, path=what, form=form, fpr=options.fpr)
    return answer
