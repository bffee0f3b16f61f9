"""The built-in models of dgmark: one folder each, in the layout of any other checkpoint. No code."""
