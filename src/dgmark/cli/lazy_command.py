"""`LazyCommand`: a command whose options are not known before it is run. Knows no particular command."""

from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command


class LazyCommand(TyperCommand):
    """A command that is made when it is run, or somebody asks for its options: other commands do not wait for it.

    What is registered, `app.command(cls=LazyCommand)(make)`, is a function without parameters that returns the command.
    """

    @cached_property
    def _made(self) -> Any:
        app = typer.Typer(add_completion=False)
        assert self.callback is not None  # typer gives every command one
        app.command()(self.callback())
        return get_command(app)

    @property
    def params(self) -> Any:
        """Its options and arguments."""
        return self._made.params

    @params.setter
    def params(self, params: Any) -> None:
        """Those of the function that makes it: none."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        return self._made.invoke(ctx)
