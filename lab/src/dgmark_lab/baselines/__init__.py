"""Published watermarks, for comparison: rules of dgmark, in its own loop and with its own key files."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.rules import Rule
from dgmark.watermark.spec import WatermarkSpec, options_of
from dgmark_lab.baselines import rules
from dgmark_lab.options import parse_options

BASELINES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        rules.KGW,
        rules.UNIGRAM,
        rules.PATTERN_MARK,
        rules.GLOAGUEN,
        rules.DMARK,
        rules.LR_DWM,
        rules.CDMARK,
        rules.GUMBEL,
        rules.TANGO,
        rules.REPLAYMARK,
    )
}


def baseline_key(name: str, key: WatermarkKey, **options: Any) -> WatermarkKey:
    """The key of a published watermark for the model of a key, with the secret of that key.

    Args:
        name: the watermark.
        key: the key.
        options: options of the watermark; the others have its defaults.

    Raises:
        SettingsError: no watermark or option has this name, a value is invalid, or the key has no secret.
    """
    if name not in BASELINES:
        raise SettingsError(f"baseline {name!r} is not one of: {', '.join(BASELINES)}")
    if key.secret is None:
        raise SettingsError(f"key {key.fingerprint} is keyless (token-id), but {name} needs a secret: make a keyed one")
    spec = BASELINES[name].spec(
        table_size=key.spec.table_size,
        tokenizer=key.spec.tokenizer,
        tokenizer_fingerprint=key.spec.tokenizer_fingerprint,
        **options,
    )
    return replace(key, spec=spec, number=None)


def options_in(spec: WatermarkSpec) -> dict[str, Any]:
    """The options of a published watermark in its spec, as plain JSON values."""
    fields = spec.to_fields()
    return {name: fields[name] for name in options_of(type(spec))}


def parse_baseline(name: str, texts: Sequence[str], key: WatermarkKey) -> WatermarkKey:
    """The key of a published watermark, with options written as NAME=VALUE; a list of numbers is "-1,1".

    Raises:
        SettingsError: no watermark or option has this name, or a value is invalid.
    """
    return baseline_key(name, key, **parse_options(texts))


__all__ = ["BASELINES", "baseline_key", "options_in", "parse_baseline"]
