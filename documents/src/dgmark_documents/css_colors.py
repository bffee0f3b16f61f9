"""Colours in values of CSS, as shares of red, green and blue in sRGB from 0 to 1."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from dgmark_documents.css_lengths import arguments_of, first_number

Color = tuple[float, float, float]
Found = tuple[Color | None, float]  # a colour, or None if it is none or not known, and its opacity

WHITE, BLACK = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)
_NEAR = 0.06  # colours that are nearer than that look the same
_OPAQUE = 0.9  # opacity from which on what is behind a colour is not seen
# the colours of the browser's own parts in a light theme
_SYSTEM = dict.fromkeys(("canvas", "field", "window", "background", "infobackground", "menu"), WHITE)
_SYSTEM |= dict.fromkeys(("canvastext", "fieldtext", "windowtext", "text", "infotext", "menutext"), BLACK)
_SYSTEM |= dict.fromkeys(("buttontext", "captiontext", "marktext"), BLACK)
_SPACES = ("display-p3", "a98-rgb", "prophoto-rgb", "rec2020")  # whose numbers differ little from those of sRGB
_FROM_D50 = ((3.1339, -1.6169, -0.4906), (-0.9788, 1.9161, 0.0335), (0.0719, -0.2290, 1.4052))
_FROM_OKLAB = ((1.0, 0.3963, 0.2158), (1.0, -0.1056, -0.0639), (1.0, -0.0895, -1.2915))
_FROM_LMS = ((4.0767, -3.3077, 0.2310), (-1.2684, 2.6098, -0.3413), (-0.0042, -0.7034, 1.7076))


def near(one: Color, other: Color) -> bool:
    """Whether two colours look the same."""
    return all(abs(a - b) < _NEAR for a, b in zip(one, other, strict=True))


def first_color(tokens: Iterable[Any]) -> Found:
    """The first colour in a value that is known."""
    for token in tokens:
        if token.type in ("ident", "hash", "function"):
            found = color_of(token)
            if found[0]:
                return found
    return None, 1.0


def color_of(value: Any) -> Found:
    """The colour that a token or an attribute stands for."""
    from tinycss2.color4 import parse_color

    name = str(getattr(value, "lower_name", getattr(value, "lower_value", value))).lower()
    if name in _SYSTEM:
        return _SYSTEM[name], 1.0
    if name == "light-dark" and not isinstance(value, str):
        return first_color(next(arguments_of(value.arguments)))
    if name == "color-mix" and not isinstance(value, str):
        return _mixed(value.arguments)
    try:
        color = parse_color(value)
        if color is None or isinstance(color, str):
            return None, 1.0
        return _in_srgb(color), 1.0 if color.alpha is None else float(color.alpha)
    except (ValueError, TypeError, NotImplementedError, ZeroDivisionError, OverflowError):
        return None, 1.0


def gradient_color(tokens: Iterable[Any], own: Color | None) -> Color | None:
    """The colour of gradients whose colours all look the same; None if they differ, or are not known.

    Args:
        tokens: the value of a background.
        own: the colour of letters, which `currentcolor` stands for.
    """
    stops: list[Color | None] = []
    for function in (one for one in tokens if one.type == "function" and "gradient" in one.lower_name):
        for token in function.arguments:
            if token.type == "ident" and token.lower_value == "currentcolor":
                stops.append(own)
            elif token.type in ("ident", "hash", "function"):
                color, alpha = color_of(token)
                if color is not None or token.type != "ident":  # or else a direction
                    stops.append(color if alpha > _OPAQUE else None)
    known = [one for one in stops if one is not None]
    alike = len(known) == len(stops) and all(near(one, other) for one, other in pairwise(known))
    return known[0] if known and alike else None


def _mixed(tokens: list[Any]) -> Found:
    """The colour between two, in whatever space they are mixed."""
    parts = list(arguments_of(tokens))[1:]
    shares = [first_number([one for one in part if one.type == "percentage"]) for part in parts]
    colors = [first_color(part) for part in parts]
    if len(colors) != 2 or any(color is None for color, _ in colors):
        return None, 1.0
    first, second = shares
    share = first if first is not None else 1 - second if second is not None else 0.5
    alphas = [colors[0][1] * share, colors[1][1] * (1 - share)]
    total = sum(alphas)
    if not total:
        return BLACK, 0.0
    red, green, blue = (
        sum(alpha * color[at] for alpha, (color, _) in zip(alphas, colors, strict=True) if color) / total
        for at in range(3)
    )
    return (red, green, blue), total


def _in_srgb(color: Any) -> Color | None:
    if color.space in ("oklab", "oklch", "lab", "lch"):
        lightness, first, second = (float(one or 0.0) for one in color.coordinates)
        if color.space.endswith("ch"):
            first, second = first * math.cos(math.radians(second)), first * math.sin(math.radians(second))
        return (
            _of_oklab(lightness, first, second) if color.space.startswith("ok") else _of_lab(lightness, first, second)
        )
    if color.space in _SPACES:
        red, green, blue = color.coordinates
    else:
        red, green, blue = color.to("srgb").coordinates
    return float(red or 0.0), float(green or 0.0), float(blue or 0.0)


def _of_oklab(lightness: float, first: float, second: float) -> Color:
    cones = tuple(one**3 for one in _times(_FROM_OKLAB, (lightness, first, second)))
    return _curved(_times(_FROM_LMS, cones))


def _of_lab(lightness: float, first: float, second: float) -> Color:
    middle = (lightness + 16) / 116
    curves = (middle + first / 500, middle, middle - second / 200)
    shares = [one**3 if one**3 > 0.008856 else (116 * one - 16) / 903.3 for one in curves]
    white = (0.9643, 1.0, 0.8251)
    return _curved(_times(_FROM_D50, tuple(share * one for share, one in zip(shares, white, strict=True))))


def _times(matrix: tuple[tuple[float, ...], ...], vector: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sum(one * other for one, other in zip(row, vector, strict=True)) for row in matrix)


def _curved(linear: tuple[float, ...]) -> Color:
    held = [min(max(one, 0.0), 1.0) for one in linear]
    red, green, blue = (12.92 * one if one <= 0.0031308 else 1.055 * one ** (1 / 2.4) - 0.055 for one in held)
    return red, green, blue
