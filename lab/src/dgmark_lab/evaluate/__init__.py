"""The quality of texts: perplexity under a judge, diversity, ratings by a language model, benchmarks, comparisons.

Names that need torch (perplexity) or an extra (ratings, benchmarks) are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dgmark.errors import install_hint
from dgmark_lab.endpoint import Endpoint
from dgmark_lab.evaluate.intervals import Bootstrap, Interval
from dgmark_lab.evaluate.paired import Comparison, compare_paired, sign_test
from dgmark_lab.evaluate.ratings import Rating, Ratings, rate_texts
from dgmark_lab.evaluate.variety import Diversity, diversity

if TYPE_CHECKING:
    from dgmark_lab.evaluate.judge import BUILTIN_JUDGE, Judge, load_judge
    from dgmark_lab.evaluate.likelihood import (
        Perplexity,
        PerplexityDifference,
        ScoredText,
        compare_perplexities,
        perplexity,
        score_texts,
        summarise,
    )
    from dgmark_lab.evaluate.nats import token_nats

_NEED_TORCH = {
    "BUILTIN_JUDGE": "judge",
    "Judge": "judge",
    "Perplexity": "likelihood",
    "PerplexityDifference": "likelihood",
    "ScoredText": "likelihood",
    "compare_perplexities": "likelihood",
    "load_judge": "judge",
    "perplexity": "likelihood",
    "score_texts": "likelihood",
    "summarise": "likelihood",
    "token_nats": "nats",
}

__all__ = [
    "BUILTIN_JUDGE",
    "Bootstrap",
    "Comparison",
    "Diversity",
    "Endpoint",
    "Interval",
    "Judge",
    "Perplexity",
    "PerplexityDifference",
    "Rating",
    "Ratings",
    "ScoredText",
    "compare_paired",
    "compare_perplexities",
    "diversity",
    "load_judge",
    "perplexity",
    "rate_texts",
    "score_texts",
    "sign_test",
    "summarise",
    "token_nats",
]


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'dgmark_lab.evaluate' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"dgmark_lab.evaluate.{_NEED_TORCH[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"dgmark_lab.evaluate.{name} needs torch and transformers: {install_hint('generate')}"
        ) from error
    globals()[name] = value
    return value
