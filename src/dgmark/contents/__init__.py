"""What counts as a text and as the token ids of a text. Everything else is refused, with what to do."""
