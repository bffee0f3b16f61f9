"""The alignment statistic with two phases (m = 2, no rotation) under many keys, twelve tokens at a time.

A token matches in exactly one of the two phases, so the effect of twelve tokens on the hidden-phase model is one of
4,096 matrices. One lookup replaces twelve steps of the forward algorithm. Knows matches only. Ours.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt16

from dgmark.detection.hidden_phase import MIXTURE, beginning, emissions, transitions

_TOKENS = 12  # then a row of the table fits a core's nearest cache
_RESCALED_EVERY = 3  # lookups; single precision has the range for this many
_PLAIN = len(MIXTURE) - 1  # parts of the mixture that never leave the mark


def two_phase_log_ratios(
    matched: Bool[np.ndarray, "n keys"], first: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, " keys"]:
    """Natural logarithm of the likelihood ratio under each of several keys, in single precision.

    Args:
        matched: whether each token matches in the first phase; the others match in the second.
        first: distribution of the first token's phase.
    """
    n, keys = matched.shape
    if not n or not keys:
        return np.zeros(keys)
    head = (n - 1) % _TOKENS + 1
    start = np.take(_beginnings(head, *first.tolist()), _codes(matched[:head])[0], axis=1)
    plain, mixed = np.ascontiguousarray(start[: 2 * _PLAIN].reshape(2, _PLAIN, keys)), start[2 * _PLAIN :]
    logs = np.zeros((len(MIXTURE), keys))
    matrices = np.empty((_table().shape[0], keys), dtype=np.float32)
    codes = _codes(matched[head:])
    for number, code in enumerate(codes, 1):
        np.take(_table(), code.astype(np.intp), axis=1, out=matrices, mode="clip")  # "raise" would buffer
        plain = _product(matrices[: 4 * _PLAIN].reshape(2, 2, _PLAIN, keys), plain)
        mixed = _product(matrices[4 * _PLAIN :].reshape(3, 3, keys), mixed)
        if number % _RESCALED_EVERY == 0:
            _rescale(plain, logs[:_PLAIN])
            _rescale(mixed, logs[_PLAIN])
    _rescale(plain, logs[:_PLAIN])
    _rescale(mixed, logs[_PLAIN])
    ratios: Float[np.ndarray, " keys"] = np.logaddexp.reduce(logs, axis=0) - np.log(len(MIXTURE))
    return ratios


def _product(
    matrices: Float32[np.ndarray, "to states ..."], alpha: Float32[np.ndarray, "states ..."]
) -> Float32[np.ndarray, "to ..."]:
    """Each key's matrix times its vector. The matrices are overwritten."""
    matrices *= alpha
    for state in range(1, len(alpha)):
        matrices[:, 0] += matrices[:, state]
    return matrices[:, 0].copy()


def _rescale(alpha: Float32[np.ndarray, "states ..."], logs: Float[np.ndarray, "..."]) -> None:
    """Scale each vector to sum 1, in place, and add the logarithm of its old sum to `logs`."""
    total = alpha.sum(axis=0)
    alpha /= total
    logs += np.log(total, dtype=np.float64)


def _codes(matched: Bool[np.ndarray, "n keys"]) -> UInt16[np.ndarray, "chunks keys"]:
    """The matches of each chunk of tokens as a number; the first token is the highest bit."""
    bits = max(1, min(len(matched), _TOKENS))
    chunks = matched.view(np.uint8).reshape(-1, bits, matched.shape[1])
    codes = chunks[:, 0].astype(np.uint16)
    for bit in range(1, bits):
        codes <<= 1
        codes |= chunks[:, bit]
    return codes


@lru_cache(maxsize=1)
def _table() -> Float32[np.ndarray, "entries codes"]:
    """The matrix of each chunk: four entries for each plain part (to, from, part), then nine for the mixed part."""
    matrices = np.broadcast_to(np.eye(3), (1, len(MIXTURE), 3, 3))
    for _ in range(_TOKENS):
        matrices = np.matmul(_steps()[None], matrices[:, None]).reshape(-1, len(MIXTURE), 3, 3)
    plain = matrices[:, :_PLAIN, :2, :2].transpose(2, 3, 1, 0).reshape(4 * _PLAIN, -1)
    mixed = matrices[:, _PLAIN].transpose(1, 2, 0).reshape(9, -1)
    return np.concatenate([plain, mixed]).astype(np.float32)


@lru_cache(maxsize=4 * _TOKENS)
def _beginnings(tokens: int, here: float, there: float) -> Float32[np.ndarray, "entries codes"]:
    """The vector after the first tokens, for each code: two entries for each plain part, three for the mixed part."""
    vectors = _likelihoods() * beginning(np.array([here, there]))
    for _ in range(tokens - 1):
        vectors = np.matmul(_steps()[None], vectors[:, None, ..., None]).reshape(-1, len(MIXTURE), 3)
    plain = vectors[:, :_PLAIN, :2].transpose(2, 1, 0).reshape(2 * _PLAIN, -1)
    return np.concatenate([plain, vectors[:, _PLAIN].T]).astype(np.float32)


def _steps() -> Float[np.ndarray, "2 mixture 3 3"]:
    """One token's step (transition, then emission), without and with a match in the first phase."""
    steps: Float[np.ndarray, "2 mixture 3 3"] = _likelihoods()[..., None] * transitions(2).swapaxes(1, 2)
    return steps


def _likelihoods() -> Float[np.ndarray, "2 mixture 3"]:
    """Likelihood ratio of a token in each phase and outside the mark, without and with a match in the first phase."""
    missed, gain = (one[:, 0, 0] for one in emissions(2))
    outside = np.ones(len(MIXTURE))
    matched = missed + gain
    return np.stack([np.stack([missed, matched, outside], axis=1), np.stack([matched, missed, outside], axis=1)])
