"""Views of an experiment: each is a function from the rows of a run to numbers, tables and figures."""
