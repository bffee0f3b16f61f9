"""The version, in one place for the package and its build."""

__version__ = "0.2.0"
