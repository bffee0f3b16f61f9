"""What stands around and in the words of a text and hides a mark: signs, codes, line ends, look-alikes; undone here."""
