"""Texts to the tokens that are scored: which count, how much choice they had, and disguises undone."""
