"""Rows: JSON Lines that resume, texts out of files, work over processes."""
