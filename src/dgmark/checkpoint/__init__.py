"""Checkpoints as files: folder, hub id, family and tokenizer, read without torch."""
