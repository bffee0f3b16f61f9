"""Training of the built-in models: data, training, evaluation, export. Not part of the installed package.

Run from the repository root, for example `python -m dgmark_lab.training.storyteller --help`.
"""
