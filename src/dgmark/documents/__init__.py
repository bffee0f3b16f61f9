"""Documents: files of many kinds to the text in them. Foreign parsers run in a process of their own, without keys."""
