"""Lengths and numbers in values of CSS, with what `calc()`, `min()`, `max()` and `clamp()` make of them."""

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

_LENGTHS = {"px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78, "q": 0.945}
_VIEWPORT = 10.0  # pixels in a hundredth of the window
_SUMS: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[float, float], float]] = {"*": operator.mul, "/": operator.truediv}


def length(token: Any, size: float, whole: float | None = None) -> float | None:
    """A length in pixels; None if it is none, or is not known.

    Args:
        token: the token, as tinycss2 has it.
        size: the size of letters in pixels.
        whole: what percentages are of; without it they are not known.
    """
    if token.type == "number":
        return float(token.value) if token.value == 0 else None
    if token.type == "percentage":
        return None if whole is None else token.value / 100 * whole
    if token.type == "function":
        return _calculated(token, size, whole)
    if token.type != "dimension":
        return None
    if token.lower_unit in ("em", "rem", "ch", "ex", "lh"):
        return float(token.value * (16.0 if token.lower_unit == "rem" else size))
    if token.lower_unit in ("vw", "vh", "vmin", "vmax"):
        return float(token.value * _VIEWPORT)
    return float(token.value * _LENGTHS[token.lower_unit]) if token.lower_unit in _LENGTHS else None


def first_number(tokens: list[Any]) -> float | None:
    """The first number of a value; a percentage counts as its share."""
    for token in tokens:
        if token.type == "number":
            return float(token.value)
        if token.type == "percentage":
            return float(token.value) / 100
        if token.type == "function" and token.lower_name in _FUNCTIONS:
            return _calculated(token, 1.0, 1.0)
    return None


def _calculated(function: Any, size: float, whole: float | None) -> float | None:
    """What a function of CSS comes to; None if it is another one or holds what is not known."""
    make = _FUNCTIONS.get(function.lower_name)
    if make is None:
        return None
    arguments = [_sum([*one], size, whole) for one in arguments_of(function.arguments)]
    try:
        return make(*(one for one in arguments if one is not None)) if None not in arguments else None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None


def _clamped(least: float, wanted: float, most: float) -> float:
    return max(least, min(wanted, most))


def _alone(value: float) -> float:
    return value


_FUNCTIONS: dict[str, Callable[..., float]] = {
    "calc": _alone, "-webkit-calc": _alone, "-moz-calc": _alone, "min": lambda *values: min(values),
    "max": lambda *values: max(values), "clamp": _clamped, "abs": abs, "sign": lambda value: math.copysign(1.0, value),
    "hypot": math.hypot, "sqrt": math.sqrt, "pow": math.pow,
}  # fmt: skip


def arguments_of(tokens: list[Any]) -> Iterator[list[Any]]:
    """The arguments of a function, without the commas between them."""
    part: list[Any] = []
    for token in tokens:
        if token.type == "literal" and token.value == ",":
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _sum(tokens: list[Any], size: float, whole: float | None) -> float | None:
    """What a sum of products comes to. Signs of sums have white space around them, and so are tokens."""
    words = [one for one in tokens if one.type not in ("whitespace", "comment")]
    values: list[float] = []
    signs: list[str] = []
    for place, token in enumerate(words):
        if place % 2:
            if token.type != "literal" or token.value not in (*_SUMS, *_PRODUCTS):
                return None
            signs.append(token.value)
            continue
        value = _term(token, size, whole)
        if value is None:
            return None
        if signs and signs[-1] in _PRODUCTS:
            try:
                values.append(_PRODUCTS[signs.pop()](values.pop(), value))
            except (ZeroDivisionError, OverflowError):
                return None
        else:
            values.append(value)
    if not values or len(words) % 2 == 0:
        return None
    total = values[0]
    for sign, value in zip(signs, values[1:], strict=True):
        total = _SUMS[sign](total, value)
    return total


def _term(token: Any, size: float, whole: float | None) -> float | None:
    if token.type == "number":
        return float(token.value)
    if token.type == "() block":
        return _sum(token.content, size, whole)
    return length(token, size, whole)
