"""Disguises and noise: characters replaced by others that look alike, or that a scanner takes for them.

`dgmark detect --normalise` undoes homoglyphs, spaces and invisible characters; nothing undoes the noise of a scan.
Budgets are exact: round(eps * n), halves up, of the n places that an attack can change.
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark_lab.attacks.budgets import Share, with_others

# Latin letters and the Cyrillic ones that look like them in most fonts
_LATIN = "aceijopsxyhABCEHIKMOPSTXY"
_CYRILLIC = "асеіјорѕхуһАВСЕНІКМОРЅТХУ"
HOMOGLYPHS = dict(zip(_LATIN, _CYRILLIC, strict=True))
# spaces that look like one plain space, and characters that are invisible
SPACES = "\u00a0\u2004\u2005\u202f\u205f"
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"
# what programs that recognise characters read in place of what was printed
_MISREAD = """
    rn=m cl=d li=h vv=w fi=h/fl ii=u/n a=o/e b=h/6 c=e/o d=cl e=c/o f=t g=q/9 h=b/li i=l/1 j=i/; k=lc l=1/I m=rn/nn
    n=u/ri o=0/c p=n q=g r=t/i s=5/a t=f/l u=n/ii v=y w=vv x=z y=v z=2 B=8 D=O E=F G=C/6 I=l/1 M=N O=0 Q=O S=5 T=I W=VV
    Z=2 0=O 1=l 5=S 8=B .=, ,=. ;=: :=; "='' '=` -=~ !=l
"""
MISREAD = {printed: read.split("/") for printed, read in (entry.split("=") for entry in _MISREAD.split())}


@dataclass(frozen=True)
class _Replacement:
    """Replace a share of the places that `pattern` finds, each by one of `others` of what stands there.

    Attributes:
        budget: share of the places, exactly round(budget * n).
    """

    budget: Share = 0.1
    pattern: ClassVar[re.Pattern[str]]
    others: ClassVar[Mapping[str, Sequence[str]]]

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the changed text."""
        text = text_of(text)
        found = [(match.span(), self.others[match[0]]) for match in self.pattern.finditer(text)]
        return with_others(text, found, self.budget, rng)


class Homoglyphs(_Replacement):
    """Replace a share of the letters that have a Cyrillic look-alike by the look-alike."""

    pattern, others = re.compile(f"[{_LATIN}]"), HOMOGLYPHS


class Whitespace(_Replacement):
    """Replace a share of the plain spaces by other Unicode spaces."""

    pattern, others = re.compile(" "), {" ": SPACES}


class ZeroWidth(_Replacement):
    """Insert invisible characters between a share of the neighbouring letters of words."""

    pattern, others = re.compile(r"(?<=[^\W\d_])(?=[^\W\d_])"), {"": ZERO_WIDTH}


@dataclass(frozen=True)
class Ocr(_Replacement):
    """Misread a share of the characters, as programs that recognise characters in a scan do.

    What can be misread is nearly all but spaces and capitals; some letters are read two at a time.
    """

    budget: Share = 0.02
    pattern = re.compile("|".join(map(re.escape, MISREAD)))
    others = MISREAD
