"""Detection: from a text and a key to a verdict with a stated error rate. No model, no prompt, no torch."""
