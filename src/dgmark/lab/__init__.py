"""The lab: baselines, attacks, evaluation and experiments, for research. Serving and checking need none of it."""
