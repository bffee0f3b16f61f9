"""Key inference: an adversary who sees marked texts estimates the groups by counting tokens at position residues.

The adversary knows the method, the tokenizer, the modulus and the rotation period (everything in a key file except
the secret), and has texts as token ids: from position 0 on, or cut at an unknown place. Counting is the optimal test
if tokens are independent given their residue: a token of group g occurs at positions that want g about q / (1 - q)
times as often as at others. Paper appendix, "Security Considerations". Knows no model and no key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dgmark_lab.attacks.edits import edit_count

Dice = np.random.Generator
_SURE = 0.89  # a token seen once, at q = .9, is enough
_ROUNDS = 100
_NEAR = 33  # tokens around a token that determine its phase
_STARTS = 4


@dataclass(frozen=True)
class Estimate:
    """An adversary's estimate of a key.

    Attributes:
        belief: (segments, vocab, m) probability that a token is in each group; one segment without rotation.
        residues: (period,) the residue that each position wants: i mod m, or an estimate of a keyed code.
        rotation: positions of a segment; 0 = the groups never change.
        names_known: False if groups and residues are known only up to one cyclic shift of their names, which is enough
            to decide what matches.
    """

    belief: Float[np.ndarray, "segments vocab modulus"]
    residues: Int[np.ndarray, " period"]
    rotation: int = 0
    names_known: bool = True

    @property
    def shifts(self) -> range:
        """The possible phases of a text; with rotation a text is assumed to begin at position 0."""
        return range(1 if self.rotation else len(self.residues))

    def matching(self, positions: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n vocab"]:
        """Return the believed probability that each token would match at each position."""
        segment = positions // self.rotation if self.rotation else np.zeros_like(positions)
        segment = np.minimum(segment, len(self.belief) - 1)
        chance: Float[np.ndarray, "n vocab"] = self.belief[segment, :, self.residues[positions % len(self.residues)]]
        return chance


def residue_counts(
    texts: Sequence[Int[np.ndarray, " _"]],
    table_size: int,
    modulus: int,
    *,
    rotation: int = 0,
    phases: Int[np.ndarray, " texts"] | None = None,
) -> Int[np.ndarray, "segments vocab modulus"]:
    """Count how often each token occurs at each residue of the position, by segment.

    Args:
        texts: token ids.
        table_size: tokens of the (padded) vocabulary.
        modulus: m.
        rotation: positions of a segment; 0 counts all positions together.
        phases: position of each text's first token, modulo m; None for 0.
    """
    segments = -(-max((len(text) for text in texts), default=1) // rotation) if rotation else 1
    counts = np.zeros((max(1, segments), table_size, modulus), dtype=np.int64)
    for number, text in enumerate(texts):
        place = np.arange(len(text))
        residue = (place + (0 if phases is None else int(phases[number]))) % modulus
        np.add.at(counts, (place // rotation if rotation else np.zeros_like(place), text, residue), 1)
    return counts


def beliefs(
    counts: Int[np.ndarray, "segments vocab modulus"], match: float = 0.9
) -> Float[np.ndarray, "segments vocab modulus"]:
    """Return the posterior probability of each token's group, from a uniform prior.

    Args:
        counts: the counts of marked texts, from `residue_counts`.
        match: share of positions that the adversary believes to match.
    """
    return _normalise(counts * _odds(match, counts.shape[-1]))


def steal(
    texts: Sequence[Int[np.ndarray, " _"]],
    table_size: int,
    modulus: int = 2,
    *,
    rotation: int = 0,
    phases_known: bool = True,
    match: float = 0.9,
) -> Estimate:
    """Estimate a key's groups from marked texts.

    Args:
        texts: token ids of marked texts.
        table_size: tokens of the (padded) vocabulary.
        modulus: m.
        rotation: the key's rotation; unless it is 0, phases must be known.
        phases_known: whether texts begin at position 0; if not, their phases are estimated together with the groups.
        match: share of positions that the adversary believes to match.
    """
    phases = None if phases_known else find_phases(texts, table_size, modulus, match)
    counts = residue_counts(texts, table_size, modulus, rotation=rotation, phases=phases)
    return Estimate(beliefs(counts, match), np.arange(modulus), rotation, names_known=phases_known)


def find_phases(
    texts: Sequence[Int[np.ndarray, " _"]], table_size: int, modulus: int, match: float = 0.9
) -> Int[np.ndarray, " texts"]:
    """Estimate the relative phases of cut texts, by expectation maximisation over phases and groups."""
    owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    offset = np.concatenate([np.arange(len(text)) % modulus for text in texts])
    entries = np.stack([owner, np.concatenate(list(texts)), offset])
    (owner, token, offset), counts = np.unique(entries, axis=1, return_counts=True)
    return _find_labels(_Entries(owner, token, offset, _odds(match, modulus) * counts), len(texts), table_size, modulus)


def find_code(counts: Int[np.ndarray, "period vocab"], modulus: int, match: float = 0.9) -> Int[np.ndarray, " period"]:
    """Estimate the residues that the positions of a period want, up to a cyclic shift of their names.

    Args:
        counts: how often each token occurs at each place of the period.
        modulus: m.
        match: share of positions that the adversary believes to match.
    """
    # the excess over the expected count: with bare counts all tokens would fall into one group
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / max(1, counts.sum())
    place, token = expected.nonzero()
    weight = _odds(match, modulus) * (counts - expected)[place, token]
    return _find_labels(_Entries(place, token, np.zeros_like(place), weight), len(counts), counts.shape[1], modulus)


def _odds(match: float, modulus: int) -> float:
    return float(np.log(match * (modulus - 1) / (1 - match)))


@dataclass(frozen=True)
class _Entries:
    """Evidence that a token belongs to group (offset + label of its owner) mod m. An owner is a text or a place."""

    owner: Int[np.ndarray, " n"]
    token: Int[np.ndarray, " n"]
    offset: Int[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]


def _find_labels(seen: _Entries, owners: int, table_size: int, modulus: int) -> Int[np.ndarray, " owners"]:
    """Estimate each owner's label by expectation maximisation over labels and groups; the best of a few starts."""
    best, best_score = np.zeros(owners, dtype=np.int64), -np.inf
    sizes = np.bincount(seen.owner, weights=np.abs(seen.weight), minlength=owners)
    for start in np.argsort(-sizes, kind="stable")[:_STARTS].tolist():
        labels = np.full((owners, modulus), 1 / modulus)
        labels[start] = np.eye(modulus)[0]
        for _ in range(_ROUNDS):
            votes = [
                np.bincount(seen.token, seen.weight * labels[seen.owner, (group - seen.offset) % modulus], table_size)
                for group in range(modulus)
            ]
            groups = _normalise(np.stack(votes, axis=1))
            scores = [
                np.bincount(seen.owner, seen.weight * groups[seen.token, (seen.offset + label) % modulus], owners)
                for label in range(modulus)
            ]
            before, labels = labels, _normalise(np.stack(scores, axis=1))
            if np.abs(labels - before).max() < 1e-6:
                break
        score = float(np.stack(scores, axis=1).max(axis=1).sum())
        if score > best_score:
            best, best_score = labels.argmax(axis=1), score
    return best


def _normalise(logs: Float[np.ndarray, "*shape modulus"]) -> Float[np.ndarray, "*shape modulus"]:
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares: Float[np.ndarray, "*shape modulus"] = weights / weights.sum(axis=-1, keepdims=True)
    return shares


def recovered_mass(
    estimate: Estimate, tables: UInt8[np.ndarray, "segments vocab"], law: Float[np.ndarray, " vocab"]
) -> float:
    """Return the share of held-out text's tokens whose estimated group is right; an undecided token counts as a guess.

    Chance level is 1/m. If the estimate's names are known only up to a shift, the best shift counts.

    Args:
        estimate: the adversary's estimate; one segment applies to all.
        tables: the key's groups by segment.
        law: frequency of each token in held-out text; sums to 1.
    """
    modulus = estimate.belief.shape[-1]
    choice = estimate.belief >= estimate.belief.max(axis=-1, keepdims=True) - 1e-12
    share = choice / choice.sum(axis=-1, keepdims=True)
    whole = np.broadcast_to(share, (len(tables), *share.shape[1:]))
    segment, token = np.arange(len(tables))[:, None], np.arange(tables.shape[1])
    shifts = range(1 if estimate.names_known else modulus)
    right = [whole[segment, token, (tables.astype(np.int64) + shift) % modulus] for shift in shifts]
    return max(float((each @ law).mean()) for each in right)


def forge(
    ids: Int[np.ndarray, " n"],
    estimate: Estimate,
    budget: float,
    law: Float[np.ndarray, " vocab"],
    rng: Dice,
    editable: Bool[np.ndarray, " n"] | None = None,
) -> Int[np.ndarray, " n"]:
    """Replace round(budget * n) tokens that, by the estimate, do not match by tokens that do.

    The tokens least likely to match come first; replacements are drawn from `law` among those with belief .89 or more.

    Args:
        ids: an unmarked text.
        estimate: the adversary's estimate.
        budget: share of tokens to replace; fewer, if fewer are editable and not believed to match.
        law: probability of each token as a replacement.
        rng: random generator.
        editable: which places may be changed; None for all.
    """
    shifts = estimate.shifts
    chances = [estimate.matching(np.arange(len(ids)) + shift) for shift in shifts]
    own = [chance[np.arange(len(ids)), ids] for chance in chances]
    best = int(np.argmax([each.sum() for each in own]))  # any phase will do: take the closest
    order = np.argsort(own[best] + rng.random(len(ids)) * 1e-9)
    off = [place for place in order.tolist() if own[best][place] <= 0.5 + 1e-6]
    return _replace(ids, chances[best], _editable_only(off, editable)[: edit_count(len(ids), budget)], law, rng)


def scrub(
    ids: Int[np.ndarray, " n"],
    estimate: Estimate,
    budget: float,
    law: Float[np.ndarray, " vocab"],
    rng: Dice,
    editable: Bool[np.ndarray, " n"] | None = None,
) -> Int[np.ndarray, " n"]:
    """Replace round(budget * n) tokens that, by the estimate, match by tokens that do not.

    The tokens most likely to match come first, at the phase that fits the tokens around them. Replacing stops where, by
    the estimate, a share 1/m matches: a text that matches too rarely at one phase matches too often at the next.

    Args:
        ids: a marked text.
        estimate: the adversary's estimate.
        budget: largest share of tokens to replace.
        law: probability of each token as a replacement.
        rng: random generator.
        editable: which places may be changed; None for all.
    """
    places = np.arange(len(ids))
    chances = np.stack([estimate.matching(places + shift) for shift in estimate.shifts])
    near = [np.convolve(chance[places, ids], np.ones(_NEAR))[_NEAR // 2 :][: len(ids)] for chance in chances]
    chance = chances[np.stack(near).argmax(axis=0), places]
    own = chance[places, ids]
    enough = max(0, int(own.sum() - len(ids) / estimate.belief.shape[-1]))
    order = np.argsort(-own + rng.random(len(ids)) * 1e-9)
    on = [place for place in order.tolist() if own[place] >= 0.5 - 1e-6]
    count = min(edit_count(len(ids), budget), enough)
    return _replace(ids, 1 - chance, _editable_only(on, editable)[:count], law, rng)


def _editable_only(order: list[int], editable: Bool[np.ndarray, " n"] | None) -> list[int]:
    return order if editable is None else [place for place in order if editable[place]]


def _replace(
    ids: Int[np.ndarray, " n"],
    good: Float[np.ndarray, "n vocab"],
    chosen: list[int],
    law: Float[np.ndarray, " vocab"],
    rng: Dice,
) -> Int[np.ndarray, " n"]:
    edited = ids.copy()
    for place in chosen:
        fit = law * (good[place] >= min(_SURE, float(good[place][law > 0].max())))
        fit[ids[place]] = 0
        if fit.sum() > 0:
            edited[place] = rng.choice(len(fit), p=fit / fit.sum())
    return edited
