"""`Look`: what a format states about how a run of text is shown, and `unseen`: why nobody sees such a text.

Readers of all kinds fill a `Look` with what stands in the file, and none of them decides. Nothing is computed: a value
that follows from a function, a variable or a theme is not known, and a place that follows from a layout is `moved`.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from dgmark_documents.account import HIDDEN, Account
from dgmark_documents.text_builder import TextBuilder

TINY = 3.0  # points: letters of at most this size cannot be read
FAR, LONGEST = 360.0, 20 * 72.0  # points to the left or above, and to the right or below, that are off any page
CLEAR = 0.1  # the opacity up to which a text cannot be seen
_NEAR = 16  # two colours that differ by less in each part, of 255, look the same
_SIGN_FONT = re.compile("(symbol|webdings|wingdings( [23])?|zapf ?dingbats|marlett|mt extra)", re.IGNORECASE)


class Look(NamedTuple):
    """How a run of text is shown, as far as the format states it.

    Attributes:
        hidden: the format hides it.
        size: the height of its letters or lines in points, whichever is smaller; None if it is not known.
        colour: the colour of its letters, as six hexadecimal digits; None if it is not known.
        background: the colour behind it, in the same form.
        opacity: from 0 to 1.
        off_page: it stands off the page.
        moved: it may be hidden, or shown at another place.
        font: the name of its font.
    """

    hidden: bool = False
    size: float | None = None
    colour: str | None = None
    background: str | None = "ffffff"
    opacity: float = 1.0
    off_page: bool = False
    moved: bool = False
    font: str = ""

    def within(
        self, sizes: Iterable[float | None] = (), *, hidden: bool = False, off_page: bool = False, **stated: Any
    ) -> "Look":
        """The look of what stands in this: its smallest size counts, and it is not seen where this is not."""
        size = min((one for one in (self.size, *sizes) if one is not None), default=None)
        hidden, off_page = self.hidden or hidden, self.off_page or off_page
        return self._replace(size=size, hidden=hidden, off_page=off_page, **stated)


def unseen(look: Look) -> str | None:
    """Why a text of this look is not seen; None if it is."""
    if look.hidden:
        return HIDDEN
    if look.off_page:
        return "text off the page"
    if look.size is not None and look.size <= TINY:
        return "tiny text"
    if look.opacity <= CLEAR:
        return "transparent text"
    if look_alike(look.colour, look.background):
        return "text in the colour of its background"
    if has_signs(look.font):
        return "letters in fonts of signs"
    return "text that may be hidden or moved" if look.moved else None


def put(builder: TextBuilder, account: Account, text: str | None, look: Look, *, exact: bool = False) -> None:
    """Add a text where it belongs: hidden text is read behind the body, and other text that is not seen is counted."""
    if not text:
        return
    why = unseen(look)
    if why == HIDDEN:
        account.hidden.add(text, exact=exact)
        return
    if why:
        account.add_not_shown(why, text)
    builder.add(text, exact=exact)


def is_off_page(places: Iterable[float | None]) -> bool:
    """Whether something stands off the page, by its distances in points from where it would stand otherwise."""
    return any(place is not None and not -FAR < place < LONGEST for place in places)


def has_signs(font: str) -> bool:
    """Whether a font shows signs in place of letters."""
    return bool(_SIGN_FONT.fullmatch(font.strip("'\"; ")))


def look_alike(colour: str | None, other: str | None) -> bool:
    """Whether two colours of six hexadecimal digits look the same; not if one is not known."""
    try:
        one, two = (bytes.fromhex((code or "").removeprefix("#")) for code in (colour, other))
    except ValueError:
        return False
    return len(one) == len(two) == 3 and all(abs(a - b) < _NEAR for a, b in zip(one, two, strict=True))
