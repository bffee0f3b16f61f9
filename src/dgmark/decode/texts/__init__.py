"""Prompts to texts: requests, batches, and texts as they are written, filled in or masked and filled again."""
