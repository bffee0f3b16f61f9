"""The quality of texts: perplexity under a judge, diversity, ratings by a language model, benchmarks, comparisons."""

from dgmark_lab.evaluate.diversity import Diversity, diversity
from dgmark_lab.evaluate.intervals import Bootstrap, Comparison, Interval, compare_paired
from dgmark_lab.evaluate.judge import Judge, load_judge
from dgmark_lab.evaluate.likelihood import Perplexity, ScoredText, perplexity, score_texts, summarise, token_nats

__all__ = [
    "Bootstrap",
    "Comparison",
    "Diversity",
    "Interval",
    "Judge",
    "Perplexity",
    "ScoredText",
    "compare_paired",
    "diversity",
    "load_judge",
    "perplexity",
    "score_texts",
    "summarise",
    "token_nats",
]
