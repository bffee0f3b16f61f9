"""What `rules.py` does to texts before they are scored: edits of words, and the other attacks of the lab."""

from typing import Any, NamedTuple

FIRST = 64  # tokens of the short texts
Options = dict[str, Any]
Attacks = tuple[tuple[str, Options], ...]  # of the lab: names and options


class Condition(NamedTuple):
    """What happens to a text before it is scored, and how it is scored."""

    attacks: Attacks = ()  # one after the other
    first: int | None = None  # only so many of its tokens
    normalise: bool = False


def _shares(kind: str, *shares: float, **options: Any) -> dict[str, Condition]:
    return {f"{kind} {share:g}": Condition(((kind, {"budget": share, **options}),)) for share in shares}


def _attacks() -> dict[str, Condition]:
    """Everything that the lab does to a text without a large model; edits of words are in `EDITS`."""
    one: dict[str, tuple[str, Options]] = {
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
    rewrite = attacks["refill 0.2"].attacks
    return attacks | {f"refill 0.2, {rounds} rounds": Condition(rewrite * rounds) for rounds in range(2, 6)}


EDITS = {
    "none": Condition(),
    **_shares("deletion", 0.1, 0.2, unit="word"),
    **_shares("insertion", 0.1, 0.2, unit="word"),
    **_shares("substitution", 0.1, 0.2, 0.4, unit="word"),
    f"{FIRST} tokens": Condition(first=FIRST),
}
# the beginnings of the texts, to see how evidence grows
LENGTHS = {f"{first} tokens": Condition(first=first) for first in (32, 64, 96, 128, 192, 256)}
CONDITIONS = {"edits": EDITS, "attacks": {**EDITS, **_attacks()}}
