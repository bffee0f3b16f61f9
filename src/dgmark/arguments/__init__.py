"""What callers pass: checks of arguments, and what counts as a text, as token ids, and as several of these."""
