"""The lab: baselines, attacks, evaluation and experiments, for research. Serving and detection do not need it."""
