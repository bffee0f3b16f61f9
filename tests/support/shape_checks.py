"""The run-time type checker that pyproject.toml puts around every call of dgmark and of training under test."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do for a float
