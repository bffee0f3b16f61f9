"""`Commands`, whose help shows the options in panels, the common ones first, and in words. Knows no command."""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

Command = TypeVar("Command", bound=Callable[..., Any])
# what other tools and commands call options, by ours; the first that the command has is named
_ELSEWHERE = {
    "length": "max-tokens max-new-tokens max-length num-predict",
    "prompt": "text",
    "prompts": "texts",
    "texts": "prompts",
    "out": "output",
    "fpr": "threshold",
}
_ARGUMENTS = ("prompt", "text", "file", "files", "input")
_DASHES = "-\u2013\u2014\u2212"  # pages turn two hyphens into one dash
# types of Python, and ranges, as typer writes them
_TYPES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "path": "PATH", "datetime": "DATE"}
_TYPE = re.compile(r"<(?:list\[)?(str|int|float|path|datetime)(?: range)?\]?>")
_WORDS = (
    (re.compile(r"\b([\d.]+)<=x<=([\d.]+)"), r"\1 to \2"),
    (re.compile(r"\bx>=([\d.]+)"), r"at least \1"),
    (re.compile(r"\[default: \(((?:[^()]|\([^()]*\))*)\)"), r"[default: \1"),
)


def panels(**names: Iterable[str] | str) -> Callable[[Command], Command]:
    """Show these options of a command in panels, by title, each with names in a list or in one text.

    Options in no panel are the common ones, which come first; arguments stand before them.
    """
    of = {name: title for title, some in names.items() for name in (some.split() if isinstance(some, str) else some)}

    def mark(command: Command) -> Command:
        command.panel_of = of  # type: ignore[attr-defined]
        return command

    return mark


def in_words(help_text: str) -> str:
    """Help as typer writes it, with words in place of Python's types and of ranges."""
    said = _TYPE.sub(lambda match: _TYPES[match[1]], help_text)
    for pattern, words in _WORDS:
        said = pattern.sub(words, said)
    return said


class PanelCommand(TyperCommand):
    """A command with `panels`. An unknown option that other tools have gets a hint at ours."""

    def panel_of(self, param: Any) -> str:
        """The title above an option or argument."""
        usual = "Arguments" if param.param_type_name == "argument" else "Options"
        return str(param.rich_help_panel or self._panels.get(param.name, usual))

    @property
    def _panels(self) -> dict[str, str]:
        return getattr(self.callback, "panel_of", {})

    def hint(self, ctx: Any, option: str) -> str | None:
        """What to say of an option that this command does not have; None for click's own words."""
        known, name = _names(self.get_params(ctx)), option.removeprefix("--")
        ours = (f"--{field}" for field, names in _ELSEWHERE.items() if name in names.split())
        takes = name in _ARGUMENTS and any(param.param_type_name == "argument" for param in self.params)
        argument = "here it is an argument, without a name" if takes else None
        return next((f"here it is {candidate}" for candidate in ours if candidate in known), argument)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the options, panel by panel."""
        shown: dict[str, list[Any]] = {title: [] for title in ("Arguments", "Options", *self._panels.values())}
        for param in self.get_params(ctx):
            shown.setdefault(self.panel_of(param), []).append(param.get_help_record(ctx))
        for title, records in shown.items():
            if said := [tuple(map(in_words, record)) for record in records if record is not None]:
                with formatter.section(title):
                    formatter.write_dl(said)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line, and answer options of other tools with a hint."""
        known = _names(self.get_params(ctx))
        for argument in args[: args.index("--")] if "--" in args else args:
            name = argument.partition("=")[0]
            plain = "--" + name.lstrip(_DASHES)
            if name[:1] in _DASHES[1:] and plain in known:
                ctx.fail(f"No such option: {name} (its dash is one of typography: write {plain})")
            if name.startswith("--") and name not in known and (hint := self.hint(ctx, name)):
                ctx.fail(f"No such option: {name} ({hint})")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:  # in the words of pydantic
            error.message = error.message.removeprefix("Value error, ").replace("Input should be", "it must be")
            raise


def _names(params: Iterable[Any]) -> set[str]:
    return {name for param in params for name in (*param.opts, *param.secondary_opts)}


class Commands(typer.Typer):
    """Commands whose help is shown so."""

    def command(  # type: ignore[override] # its other options as they are
        self, name: str | None = None, *, cls: type[TyperCommand] = PanelCommand, **options: Any
    ) -> Callable[[Command], Command]:
        """Register a command."""
        register: Callable[[Command], Command] = super().command(name, cls=cls, **options)
        return register
