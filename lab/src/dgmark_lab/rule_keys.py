"""Keys of any installed rule with the secret of another key, so that rules are compared under one secret."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.rules import find_rule
from dgmark.watermark.spec import WatermarkSpec, options_of


def rule_key(rule: str, key: WatermarkKey, /, **options: Any) -> WatermarkKey:
    """The key of an installed rule for the model of a key, with the secret of that key, and these options.

    Nothing is taken over of the key's own rule.

    Raises:
        SettingsError: no rule or option has this name, a value is invalid, or the key lacks the secret that is needed.
        MissingExtra: the package of the rule cannot be used.
    """
    bound = {name: getattr(key.spec, name) for name in ("table_size", "tokenizer", "tokenizer_fingerprint")}
    spec = rule_spec(rule, options, bound)
    if spec.keyed and key.secret is None:
        raise SettingsError(f"key {key.fingerprint} is keyless (token-id), but {rule} needs a secret: make a keyed one")
    return replace(key, spec=spec, secret=key.secret if spec.keyed else None, number=None)


def rule_spec(rule: str, options: Mapping[str, Any], bound: Mapping[str, Any]) -> WatermarkSpec:
    """The spec of an installed rule with these options; the `bound` fields bind it to a model.

    An option that is left out is that of a key file without it, so there are no sub-keys and no position code. One that
    every key file states, such as the distances of pairs, is that of a new key.

    Raises:
        SettingsError: no rule or option has this name, or a value is invalid.
        MissingExtra: the package of the rule cannot be used.
    """
    kind = find_rule(rule).spec
    new = kind.defaults_of_new(dict(options))
    stated = {name: new[name] for name, field in options_of(kind).items() if field.is_required() and name in new}
    return kind(**{**stated, **bound, **options})
