"""Documents: files of many kinds to the text in them, and what of them was not read.

Foreign parsers run in a process of their own, which imports this package, so it imports nothing by itself. Knows
nothing of what the texts are for.
"""
