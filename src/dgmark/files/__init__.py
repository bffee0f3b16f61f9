"""Files that a user names: opened, locked, and written whole or not at all."""
