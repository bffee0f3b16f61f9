"""The watermark: the rule (groups, residues, position codes) and the secret (key, key file)."""
