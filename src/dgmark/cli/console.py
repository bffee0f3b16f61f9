"""What every command shares: results on stdout, the rest on stderr, errors as one line and an exit code."""

import functools
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console

from dgmark.errors import DgmarkError, MissingExtra, install_hint
from dgmark.watermark.key_file import KeyWarning

P = ParamSpec("P")
R = TypeVar("R")

INTERRUPTED = 130
FAULT = DgmarkError.exit_code


def stderr() -> Console:
    """The console for progress, warnings and errors; it obeys NO_COLOR."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def stdout() -> Console:
    """The console for tables and highlighted text."""
    return Console(highlight=False)


def command_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Report the errors of a command in one line on stderr, with the exit codes that `errors.py` states."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with warnings.catch_warnings():
                # the warnings of libraries are for developers
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", KeyWarning)
                warnings.showwarning = _show_warning
                return command(*args, **kwargs)
        except DgmarkError as error:
            stderr().print(f"error: {error}", markup=False)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            stderr().print("interrupted: what was finished is kept", markup=False)
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            sys.stderr.close()  # nobody reads the output any more: be silent
            raise typer.Exit(0) from None
        except Exception:
            traceback.print_exc()
            stderr().print("error: this is a bug in dgmark; please report it with the lines above", markup=False)
            raise typer.Exit(FAULT) from None

    return run


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


def _show_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    stderr().print(f"warning: {message}", markup=False)
