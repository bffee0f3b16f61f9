"""What views "frontier" and "rivals" do to texts before they are scored: edits, other attacks, cuts to a length."""

from typing import Any, Literal, NamedTuple

from dgmark.checkpoint.folder import BUILTIN
from dgmark_lab.attacks.published import WAYS

Steps = tuple[tuple[str, dict[str, Any]], ...]  # names and options of attacks, one after the other
ConditionSet = Literal["edits", "attacks", "rivals", "deletion", "published"]


class Condition(NamedTuple):
    """What happens to a text before it is scored, and how it is scored.

    Attributes:
        steps: attacks, made one after the other.
        first: score only so many tokens; None scores them all.
        normalise: whether the detector undoes disguises first.
    """

    steps: Steps = ()
    first: int | None = None
    normalise: bool = False


def _shares(kind: str, *shares: float, **options: Any) -> dict[str, Condition]:
    return {f"{kind} {share:g}": Condition(((kind, {"budget": share, **options}),)) for share in shares}


def _attacks() -> dict[str, Condition]:
    """Everything that the lab does to a text without a large model; edits of words are apart."""
    one: dict[str, tuple[str, dict[str, Any]]] = {
        "sentence-swap 4": ("sentence-swap", {"swaps": 4}),
        **{f"copy-paste 1:{human}": ("copy-paste", {"human": human, "unit": "word"}) for human in (3, 10)},
        "wrap 72": ("wrap", {"width": 72}),
        **{f"document {kind}": ("document", {"format": kind}) for kind in ("word", "markdown")},
    }
    attacks = {name: Condition((step,)) for name, step in one.items()} | _shares("ocr", 0.01, 0.02, 0.05)
    for kind in ("homoglyphs", "whitespace", "zero-width"):
        attacks |= _shares(kind, 0.1)
        attacks[f"{kind} 0.1, --normalise"] = attacks[f"{kind} 0.1"]._replace(normalise=True)
    attacks |= _shares("refill", 0.1, 0.2, 0.4, holes="words", settings={"block_length": 256, "steps": 8})
    # rounds of a chain; what the rounds before made is stored
    rewrite = attacks["refill 0.2"].steps
    return attacks | {f"refill 0.2, {rounds} rounds": Condition(rewrite * rounds) for rounds in range(2, 6)}


# new words are those of one tokenizer, whatever model wrote the text
_WORDS = {"unit": "word", "tokenizer": BUILTIN}
EDITS = {
    **_shares("deletion", 0.1, 0.2, **_WORDS),
    **_shares("insertion", 0.1, 0.2, **_WORDS),
    **_shares("substitution", 0.1, 0.2, 0.4, **_WORDS),
}
# the strengths that others report; the mean of edits is that of `EDITS`
STRONG_EDITS = {**_shares("deletion", 0.3, **_WORDS), **_shares("substitution", 0.3, **_WORDS)}
_EDITED = {
    "none": Condition(),
    **EDITS,
    **STRONG_EDITS,
    **{f"{length} tokens": Condition(first=length) for length in (64, 128)},
}
CONDITIONS: dict[ConditionSet, dict[str, Condition]] = {
    "edits": _EDITED,
    "attacks": {**_EDITED, **_attacks()},
    "rivals": {
        "as written": Condition(),
        **{name: EDITS[name] for name in ("deletion 0.1", "insertion 0.2", "substitution 0.2")},
    },
    "deletion": {"as written": Condition(), "deletion 0.1": EDITS["deletion 0.1"]},
    "published": {
        "as written": Condition(),
        **{way: Condition((("published", {"way": way}),)) for way in WAYS},
    },
}
