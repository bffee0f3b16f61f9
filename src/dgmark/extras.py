"""Packages that some features need, and how to install them."""

from collections.abc import Iterator
from contextlib import contextmanager

from dgmark.errors import MissingExtra


def install_hint(extra: str, distribution: str = ".") -> str:
    """How to install an extra. The hint names a checkout, because dgmark is not on the package index."""
    return f"run `pip install '{distribution}[{extra}]'` in a checkout of dgmark"


def wing_hint(folder: str) -> str:
    """How to install a distribution that stands beside dgmark in its repository."""
    return f"run `pip install ./{folder}` in a checkout of dgmark"


@contextmanager
def needed_extra(extra: str, purpose: str, packages: str = "torch and transformers") -> Iterator[None]:
    """Report a failed import in the block as a missing extra, and say how to install the extra.

    Args:
        extra: name of the extra in pyproject.toml.
        purpose: what needs the extra, as the subject of a sentence.
        packages: the packages that the extra installs.

    Raises:
        MissingExtra: an import within the block fails.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{purpose} needs {packages}: {install_hint(extra)} ({error})") from None
