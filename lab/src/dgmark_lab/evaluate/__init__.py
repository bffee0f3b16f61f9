"""The quality of texts: perplexity under a judge, diversity, benchmarks, comparisons."""
