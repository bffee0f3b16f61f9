"""What every command shares: results on stdout, the rest on stderr, errors as one line and an exit code."""

import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.cli.process import STDOUT, Terminated, discard_output
from dgmark.errors import DgmarkError, InputError, SettingsError
from dgmark.files.inputs import STDIN
from dgmark.watermark.key_file import KeyFilePermissionWarning

P = ParamSpec("P")
R = TypeVar("R")

# what shells say of a process that SIGINT, SIGPIPE or SIGTERM ended
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143
FAULT = DgmarkError.exit_code
# the signs of Unicode for the control characters of ASCII; further ones, and those that turn the direction of a line
_SIGNS = {code: 0x2400 + code for code in range(32)} | {0x7F: 0x2421}
_SIGNS |= dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
_UNBROKEN = 1_000_000  # columns of what is not a terminal: no line is that long
_SIGNS_IN_LINES = {code: sign for code, sign in _SIGNS.items() if chr(code) not in "\n\t"}


def visible(text: str, *, lines: bool = False) -> str:
    """`text` with a sign for each character that a terminal would obey. Offsets stay the same.

    Args:
        text: what somebody else wrote: a text that is checked, an id, the name of a file.
        lines: keep line feeds and tabs.
    """
    return well_formed(text).translate(_SIGNS_IN_LINES if lines else _SIGNS)


class OutputConsole(Console):
    """Prints strings as they are, without markup, and shows their control characters.

    Attributes:
        unbroken: whether lines are as long as what they say, as programs read them.
    """

    unbroken = False

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print strings with signs for their control characters, and anything else as it is.

        What is not a character, as in the name of a file that is not UTF-8, is escaped, so that the name can be told.
        """
        shown = [
            visible(part.encode(errors="backslashreplace").decode(), lines=True) if isinstance(part, str) else part
            for part in objects
        ]
        super().print(*shown, **options)

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError again: `command_errors` decides what happens when nobody reads the output."""
        raise


# the console that shows a bar: lines on another one would be written into the bar
_with_bar: list[Console] = []


def stderr() -> Console:
    """The console for progress, warnings and errors; it obeys NO_COLOR."""
    return _with_bar[-1] if _with_bar else OutputConsole(stderr=True, soft_wrap=True)


def tell_of_key(file: Path, what: str) -> None:
    """Say what key was written to a file, on stdout; on stderr, if the key itself went to stdout."""
    print(f"{file}: {what}", file=sys.stderr if str(file) == STDIN else None)


@contextmanager
def bar_on(console: Console) -> Iterator[None]:
    """Have everything for stderr go through the console that shows a bar, until the end of the block."""
    _with_bar.append(console)
    try:
        yield
    finally:
        _with_bar.pop()


def stdout(*, boxes: bool = False) -> OutputConsole:
    """The console for tables and highlighted text.

    Args:
        boxes: boxes are shown, whose lines have a width on a pipe, too.
    """
    console = OutputConsole()
    if not (boxes or console.is_terminal or "COLUMNS" in os.environ):
        console.unbroken, console.width = True, _UNBROKEN
    return console


def command_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Report the errors of a command in one line on stderr, with the exit codes that `errors.py` states."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        """Run the command; whatever goes wrong becomes one line and an exit code."""
        try:
            with warnings.catch_warnings():
                # the warnings of libraries are for developers
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", KeyFilePermissionWarning)
                warnings.showwarning = _show_warning
                return command(*args, **kwargs)
        except DgmarkError as error:
            said = error.spelled(option_of) if isinstance(error, SettingsError) else str(error)
            stderr().print(f"error: {said}")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt as stop:
            stderr().print("interrupted: what was finished is kept")
            raise typer.Exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None
        except (typer.Exit, typer.Abort):
            raise
        except OSError as error:
            raise typer.Exit(report_system_error(error)) from None
        except Exception:
            traceback.print_exc()
            stderr().print("error: this is a bug in dgmark; please report it with the lines above")
            raise typer.Exit(FAULT) from None

    return run


def option_of(field: str) -> str:
    """A setting as an option of the command line."""
    return "--" + field.replace("_", "-")


def report_system_error(error: OSError) -> int:
    """Report what the system refused, in one line on stderr, and return the exit code."""
    reason = error.strerror or str(error)
    if error.filename == STDOUT:
        discard_output()
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        stderr().print(
            f"error: {STDOUT} cannot be written ({reason}): make room or send it elsewhere; files are kept as written"
        )
    else:
        named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        stderr().print(f"error: {named}{reason}: check the path, its permissions and the free space")
    return InputError.exit_code


def _show_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    stderr().print(f"warning: {message}")
