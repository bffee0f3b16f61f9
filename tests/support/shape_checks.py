"""Run-time type checks around calls of dgmark and of its lab: the first ones of each function in each test.

A check takes several times as long as a short function, and a function that was called rightly so often in one test
hardly shows anything new in the same test.
"""

import functools
import os
import types
from typing import Any

import jaxtyping
import typer
from beartype import BeartypeConf, FrozenDict, beartype

CALLS = 8 if os.environ.get("DGMARK_ALL_CASES") else 2  # `make soak` sets it
# an int will do for a float; typer passes a context of a base class
check = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict({typer.Context: object})))
_decorate = jaxtyping.jaxtyped
_calls: dict[int, int] = {}


def install() -> None:
    """Check what is imported from now on."""
    # what its import hook puts around each function
    setattr(jaxtyping, "jaxtyped", lambda *, typechecker: functools.partial(_checked_at_first, typechecker))  # noqa: B010
    jaxtyping.install_import_hook(["dgmark", "dgmark_lab"], f"{__name__}.check")


def begin_test() -> None:
    """Count the calls anew."""
    _calls.clear()


def _checked_at_first(typechecker: Any, what: Any) -> Any:
    if isinstance(what, type):
        if "__init__" in vars(what) and "__dataclass_fields__" in vars(what):
            what.__init__ = _checked_at_first(typechecker, what.__init__)  # type: ignore[misc]
        return what
    if not isinstance(what, types.FunctionType):
        return _decorate(what, typechecker=typechecker)
    checked, code = None, id(what.__code__)  # which functions that are made anew share, and which hashes fast

    @functools.wraps(what)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        calls = _calls.get(code, 0)
        if calls >= CALLS or jaxtyping.config.jaxtyping_disable:
            return what(*args, **kwargs)
        _calls[code] = calls + 1
        # only now: most functions of a module are never called, and those inside others are made anew each time
        checked = checked or _decorate(what, typechecker=typechecker)
        return checked(*args, **kwargs)

    return wrapper
