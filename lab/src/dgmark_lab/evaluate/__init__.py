"""The quality of texts: perplexity under a judge, diversity, ratings by a language model, benchmarks, comparisons."""
