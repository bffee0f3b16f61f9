"""The route of what the models' settings files hold: what was chosen, what it costs, what else was tried."""

from pathlib import PurePath

from fastapi import APIRouter, Request

from dgmark.decode.settings_file import Frontier, Values
from dgmark.service.fields import AnswerFields
from dgmark.service.house import House


class TunedModel(AnswerFields):
    """A model that has a settings file, and what the file holds.

    frontier is null if the file does not say what else was tried (version 1).
    """

    name: str
    code_length: int
    decoding: Values
    measured: Values
    frontier: Frontier | None


class Tuning(AnswerFields):
    """The models that have a settings file, in the order of /v1/about."""

    models: list[TunedModel]


def routes(house: House) -> APIRouter:
    """The route /v1/tuning.

    Args:
        house: what the routes of the service share.
    """
    router = APIRouter(tags=["generation"])
    tuned = [(name, offer.source.tuned) for name, offer in house.offers.items()]
    answer = Tuning(
        models=[
            TunedModel(
                name=name,
                code_length=one.code_length,
                decoding=one.decoding,
                measured=_without_path(one.measured),
                frontier=one.frontier,
            )
            for name, one in tuned
            if one is not None
        ]
    )

    @router.get("/v1/tuning", summary="The settings of marked texts, what they cost, and what else was tried")
    async def tuning(request: Request) -> Tuning:
        house.callers.with_scope(request, "generate")
        return answer

    return router


def _without_path(measured: Values) -> Values:
    """The figures, with the last part of the judge's name if that is the path of a folder, which nobody else sees."""
    judge = measured.get("judge")
    if not isinstance(judge, str):
        return measured
    path = PurePath(judge)
    return {**measured, "judge": path.name} if path.is_absolute() or judge.startswith((".", "~")) else measured
