"""Curves over temperatures, compared where their texts are equally diverse.

A scheme's texts become more diverse and less predictable as the temperature rises. So a scheme is a curve, and two
schemes are compared at one diversity, between the temperatures that were run. All cells have the same prompts, and the
bootstrap draws prompts, so that what differs between prompts cancels out. Knows no experiment and no store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dgmark_lab.evaluate.estimates import Estimate, interval, mean, perplexity, quantile, share

# nine texts in ten are less perplexing than this one
WORST = 0.9
_DRAWS = 2000


@dataclass(frozen=True)
class Measured:
    """The texts of one cell, measured text by text, in the order of the prompts.

    Attributes:
        temperature: the cell's temperature.
        diversity: distinct-2 of each text.
        nats: nats of each text under the judge; empty, or fewer than there are texts, if some were not judged.
        tokens: judge tokens of each of these.
        others: further figures of each text, by name, of which the mean is taken.
        found: by name, 100 for each text that was found and 0 for each other.
    """

    temperature: float
    diversity: Float[np.ndarray, " texts"]
    nats: Float[np.ndarray, " judged"]
    tokens: Float[np.ndarray, " judged"]
    others: Mapping[str, Float[np.ndarray, " texts"]]
    found: Mapping[str, Float[np.ndarray, " texts"]]

    @property
    def judged(self) -> int:
        """The number of texts if all were judged, else 0."""
        return len(self.nats) if len(self.nats) == len(self.diversity) else 0

    @property
    def each(self) -> Float[np.ndarray, " judged"]:
        """The perplexity of each text; 1 for an empty one."""
        each: Float[np.ndarray, " judged"] = np.exp(self.nats / np.maximum(self.tokens, 1))
        return each

    @property
    def cost(self) -> dict[str, Estimate]:
        """The diversity, and the perplexities if all texts were judged."""
        cost = {"distinct-2": mean(self.diversity)}
        if self.judged:
            cost["perplexity"] = perplexity(self.nats, self.tokens)
            cost["worst decile"] = quantile(self.each, WORST)
        return cost

    def at(self, drawn: Int[np.ndarray, "draws texts"]) -> dict[str, Float[np.ndarray, " draws"]]:
        """Compute diversity, perplexity, the perplexity of the worst decile, and all others, for each draw of texts."""
        nats, tokens = self.nats[drawn], self.tokens[drawn]
        return {
            "diversity": self.diversity[drawn].mean(1),
            "perplexity": np.exp(nats.sum(1) / tokens.sum(1)),
            "worst decile": np.quantile(self.each[drawn], WORST, axis=1),
            **{name: values[drawn].mean(1) for name, values in {**self.others, **self.found}.items()},
        }


def matched(curve: Sequence[Measured], reference: Measured) -> dict[str, Estimate] | None:
    """Interpolate a curve to the diversity of the reference; None if that lies outside the temperatures that were run.

    Between two neighbouring temperatures everything is interpolated linearly in the diversity, the perplexities in
    their logarithm. Draws of the bootstrap that leave the curve go on along its last piece. The interval of a
    share of texts is at least as wide as Wilson's, because the bootstrap sees no doubt where all texts agree.

    Returns each figure there; "temperature" is that between those run, and "perplexity ratio" is over the reference,
    whose prompts are those of the curve's cells.

    Raises:
        ValueError: the cells have different numbers of texts.
    """
    ordered = sorted(curve, key=lambda one: one.temperature)
    count = len(reference.diversity)
    if any(len(one.diversity) != count for one in ordered):
        raise ValueError("the cells have different numbers of texts: compare cells over the same prompts")
    all_texts = np.arange(count)[None]
    found = _interpolated(ordered, reference, all_texts)
    if found is None:
        return None
    rng = np.random.default_rng(0)
    drawn = rng.integers(count, size=(_DRAWS, count))
    draws = _interpolated(ordered, reference, drawn, outside=True)
    assert draws is not None
    estimates = {name: interval(float(found[name][0]), draws[name], count) for name in found}
    for name in ordered[0].found:
        one = estimates[name]
        wilson = share(round(one.value * count / 100), count)
        low, high = min(one.low, 100 * wilson.low), max(one.high, 100 * wilson.high)
        estimates[name] = Estimate(one.value, low, high, count)
    return estimates


_LOGARITHMIC = ("perplexity", "worst decile")
# of perplexities: a draw that leaves a flat curve may lie so far out that only its order counts
_LOG_RANGE = (-300.0, 300.0)


def _interpolated(
    curve: Sequence[Measured], reference: Measured, drawn: Int[np.ndarray, "draws texts"], *, outside: bool = False
) -> dict[str, Float[np.ndarray, " draws"]] | None:
    """Compute the curve's figures at the reference's diversity; None if there is none inside and `outside` is false."""
    if len(curve) < 2:
        return None
    wanted = reference.at(drawn)
    points = [{**one.at(drawn), "temperature": np.full(len(drawn), one.temperature)} for one in curve]
    diversity = np.stack([point["diversity"] for point in points])
    # the piece whose ends enclose the reference; noise may bend a curve, so the last such piece is taken
    below = (diversity[:-1] <= wanted["diversity"]) & (wanted["diversity"] < diversity[1:])
    inside = below.any(0)
    if not outside and not inside.all():
        return None
    last = len(curve) - 2 - np.argmax(below[::-1], axis=0)
    edge = np.where(wanted["diversity"] < diversity[0], 0, len(curve) - 2)
    piece = np.where(inside, last, edge)
    place = np.arange(len(piece))
    start, end = diversity[piece, place], diversity[piece + 1, place]
    span = np.where(end == start, 1.0, end - start)
    weight = (wanted["diversity"] - start) / span
    found: dict[str, Float[np.ndarray, " draws"]] = {}
    for name in points[0]:
        values = np.stack([point[name] for point in points])
        scaled = np.log(values) if name in _LOGARITHMIC else values
        between = scaled[piece, place] * (1 - weight) + scaled[piece + 1, place] * weight
        found[name] = np.exp(np.clip(between, *_LOG_RANGE)) if name in _LOGARITHMIC else between
    found |= {name: np.clip(found[name], 0, 100) for name in curve[0].found}
    del found["diversity"]  # that of the reference
    ratio = found["perplexity"] / wanted["perplexity"]
    return {"temperature": found.pop("temperature"), "perplexity ratio": ratio, **found}
