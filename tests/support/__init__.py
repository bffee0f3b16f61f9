"""What several tests share: keys, texts, models and commands. No test imports another test."""

from support import shape_checks as shape_checks  # pyproject.toml names it by this package alone
