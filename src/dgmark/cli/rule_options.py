"""`RuleCommand`: a command that also takes the options of the rule that `--rule` names, whoever adds the rule."""

import inspect
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from dgmark.cli.console import option_of
from dgmark.cli.options import set_options
from dgmark.cli.panels import PanelCommand
from dgmark.errors import MissingExtra, SettingsError
from dgmark.watermark.rules import OWN, find_rule, rule_with_options
from dgmark.watermark.spec import WatermarkSpec, options_of


class RuleCommand(PanelCommand):
    """A command with an option `--rule`. Without it, it has the options of dgmark's own rules.

    The options of the rule that are given are the `obj` of the command's context.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line, by the rule that it names."""
        for argument, following in zip(args, [*args[1:], ""], strict=False):
            name, equals, value = argument.partition("=")
            if name == "--rule":
                ctx.meta["rule"] = value if equals else following
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own options, and those of the rule; none if there is no such rule, as the command will say."""
        name, options = ctx.meta.get("rule"), [*super().get_params(ctx)]
        with suppress(SettingsError, MissingExtra):
            for rule in OWN.values() if name is None else [find_rule(name)]:
                spec: Any = rule.spec
                options += _options(spec, rule.title)
        return options

    def invoke(self, ctx: Any) -> Any:
        """Run the command, with the options of the rule as `ctx.obj`."""
        own = {param.name for param in self.params}
        ctx.obj = set_options(**{name: ctx.params.pop(name) for name in [*ctx.params] if name not in own})
        return super().invoke(ctx)

    def hint(self, ctx: Any, option: str) -> str | None:
        """Which rules have an option that this one has not, or why this one cannot be used."""
        rule, name = ctx.meta.get("rule"), option.removeprefix("--").replace("-", "_")
        try:
            if rule is None:
                rule_with_options({name: None})
            else:
                find_rule(rule)
        except (SettingsError, MissingExtra) as error:
            return error.spelled(option_of) if isinstance(error, SettingsError) else str(error)
        words = name.replace("_", " ").replace("subkeys", "sub-keys")
        return f"rule {rule} has no {words}: leave that out, or choose a rule that has it"


@cache
def _options(spec: type[WatermarkSpec], title: str) -> list[Any]:
    """The options of a rule, as typer makes them of a signature."""
    name = str(spec.__pydantic_fields__["rule"].default)  # type: ignore[attr-defined]
    panel = f"Rule {name} ({title})" if title else f"Rule {name}"

    def parameter(option: str, field: FieldInfo) -> inspect.Parameter:
        extra: Any = field.json_schema_extra or {}
        shown = str(extra.get("default_text", _default(spec, option, field))) or False
        info = typer.Option(help=extra.get("help", ""), show_default=shown, rich_help_panel=panel)
        kind: Any = _kind(field) | None
        return inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info])

    def command() -> None: ...

    command.__signature__ = inspect.Signature([parameter(*option) for option in options_of(spec).items()])  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return [*typer.main.get_command(app).params]


def _default(spec: type[WatermarkSpec], option: str, field: FieldInfo) -> str:
    """The default of an option for new keys, in words; empty if it must be given."""
    of_new = spec.defaults_of_new({})
    if option not in of_new and field.is_required():
        return ""
    default = of_new.get(option, field.default)
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _kind(field: FieldInfo) -> Any:
    """How the command line reads an option: a choice, a switch, a number, or a text that the spec reads."""
    kind: Any = field.annotation
    if get_origin(kind) in (Union, UnionType):
        kinds = [part for part in get_args(kind) if part is not NoneType]
        kind = kinds[0] if len(kinds) == 1 else str
    words = get_origin(kind) is Literal and all(isinstance(word, str) for word in get_args(kind))
    return kind if words or kind in (bool, int, float) else str
