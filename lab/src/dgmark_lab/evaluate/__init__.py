"""The quality of texts: perplexity under a judge, diversity, ratings by a language model, benchmarks, comparisons."""

from dgmark_lab.evaluate.diversity import Diversity, diversity
from dgmark_lab.evaluate.intervals import Bootstrap, Comparison, Interval, compare_paired
from dgmark_lab.evaluate.judge import BUILTIN_JUDGE, Judge, load_judge
from dgmark_lab.evaluate.likelihood import (
    Perplexity,
    PerplexityDifference,
    ScoredText,
    compare_perplexities,
    perplexity,
    score_texts,
    summarise,
    token_nats,
)
from dgmark_lab.evaluate.ratings import Rating, Ratings, rate_texts

__all__ = [
    "BUILTIN_JUDGE",
    "Bootstrap",
    "Comparison",
    "Diversity",
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
    "summarise",
    "token_nats",
]
