"""The strip: a picture of the matches along one text, with its windows and spans. Needs matplotlib.

The colours can be told apart without colour vision (Okabe and Ito), and never carry the meaning alone. Knows matches
and spans, not how they were found. Ours.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from dgmark.detection.edit_test import DEFAULT_WINDOW, window_z_scores
from dgmark.errors import InputError, MissingExtra, SettingsError, install_hint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def match_strip(
    matched: Bool[np.ndarray, " n"],
    modulus: int,
    *,
    spans: Sequence[tuple[int, int]] = (),
    window: int = DEFAULT_WINDOW,
    title: str = "",
) -> "Figure":
    """Draw whether each scored token matches, the z-score of each window, and the spans.

    Args:
        matched: whether each scored token matches.
        modulus: number of groups m.
        spans: scored tokens [first, last) of each span.
        window: number of tokens in a window.
        title: the title above the picture.
    """
    figure = new_figure(9, 3)
    strip, curve = figure.subplots(2, 1, sharex=True, height_ratios=[1, 3])
    at = np.arange(len(matched))
    strip.vlines(at[matched], 0.5, 1, colors=COLOURS[0], linewidth=1)
    strip.vlines(at[~matched], 0, 0.5, colors=COLOURS[1], linewidth=1)
    strip.set_yticks([0.25, 0.75], ["other", "match"])
    strip.set_title(title, fontsize="medium")
    scores = window_z_scores(matched, modulus, window)
    curve.axhline(0, color="0.6", linewidth=0.8)
    curve.plot(np.arange(len(scores)) + (window - 1) / 2, scores, color=COLOURS[6], linewidth=1)
    for number, (first, last) in enumerate(spans):
        curve.axvspan(first - 0.5, last - 0.5, color=COLOURS[5], alpha=0.3, label="" if number else "span")
    if spans:
        curve.legend(loc="lower right")
    curve.set_xlim(-1, max(len(matched), 1))
    curve.set_xlabel("scored token")
    curve.set_ylabel(f"z of {window} tokens")
    return figure


def save(figure: "Figure", path: Path) -> None:
    """Write a picture in the format of the path's suffix.

    Raises:
        SettingsError: the suffix is not a picture format.
        InputError: the file cannot be written.
    """
    check_target(path)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; make room, or choose another place") from error


def check_target(path: Path) -> None:
    """Refuse a path that no picture can be written to, before there is any work to lose.

    Raises:
        SettingsError: the suffix is not a picture format.
        InputError: the folder does not exist, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    known = new_figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in known:
        raise SettingsError(f"{path} does not end in a picture format: {', '.join(sorted(known))}")
    there = path if path.exists() else path.parent
    if path.is_dir() or not path.parent.is_dir() or not os.access(there, os.W_OK):
        raise InputError(
            f"{path} cannot be written: the folder does not exist, or writing there is not permitted; "
            "choose another place"
        )


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of this size in inches.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra(f"pictures need matplotlib: {install_hint('report')}") from error
    return Figure(figsize=(width, height), layout="constrained")
