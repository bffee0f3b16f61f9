"""Disguises, which change a text's tokens but not what a reader sees: undone on request, and named where they matter.

Each step is a function in a dict, which keeps the places of the characters. Knows nothing of tokens and keys. Ours.
"""

import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np

from dgmark.arguments.checks import several, shown
from dgmark.detection.reading.disguises.mapped_text import MappedText
from dgmark.detection.reading.disguises.terminal import count_terminal_codes, without_codes
from dgmark.errors import SettingsError, needed_extra

# characters that show nothing (Unicode's Default_Ignorable_Code_Point), the marks of annotations and of objects, and
# controls but for those of terminals; joiners are kept beside letters that need them
_IGNORABLE = (
    "\x00-\x06\x10-\x1a\x7f\u00ad\u034f\u17b4\u17b5\u180b-\u180f\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff0-\ufffc"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# fillers of Hangul and separators of data: spaces in a text that has hardly any others, and nothing in other texts
_BLANK = "\u115f\u1160\u3164\uffa0\x1c-\x1f"
_BLANKS, _BREAKS = re.compile(f"[{_BLANK}]"), re.compile("[ \t\n\u00a0\u2000-\u200a\u3000]+")
_LONGEST_WORDS = 20  # mean characters of what stands between spaces
_DIRECTIONS = "\u061c\u200e\u200f"
_INVISIBLE = re.compile(f"[{_IGNORABLE}{_DIRECTIONS}]|[\ufe00-\ufe0f]+")
# from an order of characters that is imposed on them to its end
_OVERRIDDEN = re.compile("\u202e([^\u202a-\u202e\n]*)\u202c?")
_VARIATION_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_JOINER = re.compile("(?<=[\\x00-\\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\\x00-\\x7f])")
# marks that strike letters, and spaces between them, through, underline or enclose them
_OVERLAYS = re.compile("(?<=[A-Za-z\\s])[\u0332-\u0338\u20d0-\u20ff]+")
_MARKED = re.compile("([A-Za-z])([\u0300-\u036f\u20d0-\u20ff]+)")
# a mark on so many different ASCII letters, and on such a share of all, decorates a text; no language writes so
_FEWEST_DECORATED, _LEAST_SHARE_DECORATED = 8, 1 / 2
# letters of phonetics whose shapes are those of Latin letters in some typefaces
_PHONETIC = {0x0251: "a", 0x0261: "g"}
_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»＂", '"') | dict.fromkeys("‘’‚‛‹›＇", "'"))
_ODD_SPACE = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000\x0b\x0c"
_SPACES = re.compile(f"[{_ODD_SPACE}\t ]+")
# where Unicode has letters for other shapes of letters: raised and lowered, letterlike and mathematical, circled,
# squared and in brackets, small capitals, ligatures, and the full width
_SHAPES = (
    range(0x0250, 0x0300), range(0x1D00, 0x1DC0), range(0x2070, 0x2160), range(0x249C, 0x24EA), range(0x2C60, 0x2C80),
    range(0xA720, 0xA800), range(0xFB00, 0xFB07), range(0xFF10, 0xFF5B), range(0x1D400, 0x1D800),
    range(0x1F110, 0x1F18A),
)  # fmt: skip
_SHAPE_TAGS = ("<font>", "<wide>", "<circle>", "<square>", "<super>", "<sub>", "<compat>")
_SIGNS = frozenset(
    "\u2100\u2101\u2105\u2106\u2116\u2120\u2121\u2122\u213b\u2126\u212a\u212b"
)  # no letters: c/o, No, TM
_SMALL_CAPITAL = re.compile("LATIN LETTER SMALL CAPITAL ([A-Z])")
# Roman numbers in words of other letters; by themselves they are numbers
_ROMAN = re.compile(
    "(?<![A-Za-z])[A-Za-z]++[\u2160-\u217f][A-Za-z\u2160-\u217f]*+|[\u2160-\u217f]++[A-Za-z][A-Za-z\u2160-\u217f]*+"
)
_FULL_WIDTH = re.compile("[\uff01-\uff5e]+")
_SENTENCE_END = re.compile(r"(?:^|[.!?\n][\"'”’)\]]*\s+)[\"'“‘(\[¿¡]*$")
_LINE_ENDS = re.compile("\r\n?|[\u0085\u2028\u2029]")
_WORD, _ASCII_LETTER = re.compile(r"\w+"), re.compile("[A-Za-z]")


def compose(mapped: MappedText) -> MappedText:
    """Put a text in Unicode's composed form, see `nfc`."""
    return mapped if nfc(mapped.text) == mapped.text else mapped.replaced(_letters(), lambda letter: nfc(letter[0]))


@cache
def _further_parts() -> frozenset[str]:
    """What does not begin a letter: marks, and what else Unicode composes with what stands before it."""
    signs = [chr(code) for code in range(0x80, sys.maxunicode + 1)]
    composed = {chr(int(parts[1], 16)) for parts in map(_canonical_parts, signs) if len(parts) == 2}
    of_hangul = map(chr, range(0x1160, 0x1200))
    marks = (sign for sign in signs if unicodedata.category(sign)[0] == "M")
    return frozenset({*composed, *of_hangul, *marks})


def _canonical_parts(sign: str) -> list[str]:
    return [] if (parts := unicodedata.decomposition(sign)).startswith("<") else parts.split()


@cache
def _letters() -> re.Pattern[str]:
    """A letter with its further parts, or a character outside of ASCII: no more is composed or put in order at once."""
    further = re.escape("".join(_further_parts()))
    return re.compile(f"[^{further}]?[{further}]+|[^\\x00-\\x7f]")


def whole_letters(text: str, start: int, end: int) -> tuple[int, int]:
    """The range [start, end) of a text, its edges moved outwards to where letters begin: not before a mark on one."""
    while 0 < start < len(text) and text[start] in _further_parts():
        start -= 1
    while end < len(text) and text[end] in _further_parts():
        end += 1
    return start, end


def nfc(text: str) -> str:
    """Unicode's composed form. A run of 64 or more combining marks, which no text has, is left as it is."""
    return _in_form("NFC", text)


def _in_form(form: Literal["NFC", "NFD"], text: str) -> str:
    if text.isascii():
        return text
    pieces = _stacked_marks().split(text)
    return "".join(piece if index % 2 else unicodedata.normalize(form, piece) for index, piece in enumerate(pieces))


@cache
def _stacked_marks() -> re.Pattern[str]:
    """Runs of combining marks so long that putting them in order, which takes the square of their number, shows."""
    marks = "".join(mark for mark in map(chr, range(sys.maxunicode + 1)) if unicodedata.combining(mark))
    return re.compile(f"([{re.escape(marks)}]{{64,}})")


def remove_invisible(mapped: MappedText) -> MappedText:
    """Leave out characters that show nothing; what they show from behind is put in its order."""
    mapped = _in_order_shown(mapped)
    if not _is_spaced_by_blanks(mapped.text):
        mapped = mapped.replaced(_BLANKS, "")
    return mapped.replaced(_INVISIBLE, _unless_presentation).replaced(_JOINER, "")


def _in_order_shown(mapped: MappedText) -> MappedText:
    """The text with what is shown from behind in its order, without the characters that ask for that."""
    order, controls = np.arange(len(mapped.text)), list[tuple[int, int, str]]()
    for run in _OVERRIDDEN.finditer(mapped.text):
        first, stop = run.span(1)
        order[first:stop] = order[first:stop][::-1]
        controls += ((run.start(), first, ""), (stop, run.end(), ""))
    if not controls:
        return mapped
    return MappedText("".join(mapped.text[place] for place in order), mapped.places[order]).edited(controls)


def _is_spaced_by_blanks(text: str) -> bool:
    """Whether fillers and separators stand between the words of a text, as hardly any spaces do."""
    blanks = _BLANKS.subn("", text)[1]
    return blanks > 0 and len(text) - blanks > _LONGEST_WORDS * len(_BREAKS.split(text))


def _unless_presentation(run: re.Match[str]) -> str:
    """Nothing; but variation selectors that no letter stands beside stay: an emoji keeps its presentation."""
    if run[0][0] not in _VARIATION_SELECTORS:
        return ""
    before, behind = run.string[run.start() - 1 : run.start()], run.string[run.end() : run.end() + 1]
    return "" if _WORD.match(before) or _WORD.match(behind) else run[0]


def fold_shapes(mapped: MappedText) -> MappedText:
    """Replace letters of other shapes, such as mathematical and fullwidth ones, by the letters that they stand for.

    This is Unicode's compatibility form (NFKC) of letters alone, and small capitals: raised digits and fractions stay.
    Fullwidth signs are replaced beside fullwidth letters. Marks that strike ASCII letters through, underline or enclose
    them are left out, as are those that decorate the letters of the whole text.
    """
    if mapped.text.isascii():
        return mapped
    if marks := dict.fromkeys(map(ord, _decorations(mapped.text))):
        mapped = mapped.replaced(_letters(), lambda letter: nfc(_in_form("NFD", letter[0]).translate(marks)))
    mapped = mapped.replaced(_FULL_WIDTH, _narrowed).translated(_shapes())
    return mapped.replaced(_ROMAN, lambda numeral: unicodedata.normalize("NFKC", numeral[0])).replaced(_OVERLAYS, "")


def _decorations(text: str) -> set[str]:
    """The marks that at least half of the ASCII letters of a text carry, and many different ones."""
    decomposed = _in_form("NFD", text)
    carried = defaultdict[str, Counter[str]](Counter)
    for letter, marks in _MARKED.findall(decomposed):
        for mark in set(marks):
            carried[mark][letter] += 1
    least = _LEAST_SHARE_DECORATED * sum(1 for _ in _ASCII_LETTER.finditer(decomposed))
    return {mark for mark, letters in carried.items() if len(letters) >= _FEWEST_DECORATED and letters.total() >= least}


def _narrowed(run: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", run[0]) if any(map(str.isalpha, run[0])) else run[0]


@cache
def _shapes() -> dict[int, str]:
    letters = {}
    for letter in (chr(code) for codes in _SHAPES for code in codes):
        meant = unicodedata.normalize("NFKC", letter).strip("()")
        tag = unicodedata.decomposition(letter).partition(" ")[0]
        small = _SMALL_CAPITAL.fullmatch(unicodedata.name(letter, ""))
        if small:
            letters[ord(letter)] = small[1].lower()
        elif tag in _SHAPE_TAGS and meant.isalnum() and letter not in _SIGNS:
            number = meant.isdigit() and tag not in ("<font>", "<wide>", "<square>")  # a raised or circled digit
            letters |= {} if number else {ord(letter): meant}
    return letters


def fold_homoglyphs(mapped: MappedText) -> MappedText:
    """Replace look-alike letters by ASCII letters in words that also hold ASCII letters; other words stay unchanged.

    A word of look-alikes alone is taken for what the words around it are. This needs the package
    `confusable-homoglyphs`.
    """
    with needed_extra("normalise", "finding look-alike letters", "confusable-homoglyphs"):
        from confusable_homoglyphs import confusables
    if mapped.text.isascii():
        return mapped

    def folded(word: str) -> str:
        word = word.translate(_PHONETIC)
        for found in confusables.is_confusable(word, greedy=True, preferred_aliases=["latin"]) or ():
            letter = found["character"]
            alike = next((glyph["c"] for glyph in found["homoglyphs"] if glyph["c"].isascii()), None)
            if alike and not letter.isascii():
                # Unicode's table has a capital I as a look-alike of l
                word = word.replace(letter, "I" if alike == "l" and letter.isupper() else alike)
        return word

    found = list(_WORD.finditer(mapped.text))
    words = [word[0] for word in found]
    alike = [word if word.isascii() else folded(word) for word in words]
    latin = [
        True if _ASCII_LETTER.search(word) else None if other.isascii() else False
        for word, other in zip(words, alike, strict=True)
    ]
    around = zip(_last_known(latin), reversed(_last_known(latin[::-1])), strict=True)
    fold = [known or (known is None and {True} == {*both} - {None}) for known, both in zip(latin, around, strict=True)]
    edits = zip(found, alike, fold, strict=True)
    return mapped.edited((*word.span(), other) for word, other, yes in edits if yes and word[0] != other)


def _last_known(values: list[bool | None]) -> list[bool | None]:
    """Each value, or the last one before it if it is None."""
    known: list[bool | None] = [None]
    for value in values:
        known.append(known[-1] if value is None else value)
    return known[1:]


def fold_quotes(mapped: MappedText) -> MappedText:
    """Replace quotation marks and apostrophes by straight ones."""
    return mapped.translated(_QUOTES)


def fold_whitespace(mapped: MappedText) -> MappedText:
    """Replace each run of spaces of any kind by one plain space, and each line end by a plain one."""
    if _is_spaced_by_blanks(mapped.text):
        mapped = mapped.replaced(_BLANKS, " ")
    return mapped.replaced(_LINE_ENDS, "\n").replaced(_SPACES, " ")


def lower_capitals(mapped: MappedText) -> MappedText:
    """Lower the letters of a text that has capitals alone, but for the first letters of sentences and the word I.

    Names begin with small letters then, so some of the tokens of the text before are lost.
    """
    if not _is_capitals(mapped.text):
        return mapped

    def lowered(word: re.Match[str]) -> str:
        if word[0] == "I":
            return word[0]
        begins = _SENTENCE_END.search(mapped.text[max(0, word.start() - 8) : word.start()])
        return word[0].capitalize() if begins else word[0].lower()

    return mapped.replaced(_WORD, lowered)


def _is_capitals(text: str) -> bool:
    """Whether a text has no small letters, and is not one in a script without capitals that holds a few."""
    return text.isupper() and sum(map(str.isupper, text)) > len(text) / 2


STEPS: dict[str, Callable[[MappedText], MappedText]] = {
    "ansi": without_codes,
    "nfc": compose,
    "invisible": remove_invisible,
    "compatibility": fold_shapes,
    "homoglyphs": fold_homoglyphs,
    "quotes": fold_quotes,
    "whitespace": fold_whitespace,
    "capitals": lower_capitals,
}


def normalise(text: str, steps: Sequence[str]) -> tuple[MappedText, tuple[str, ...]]:
    """Apply steps, which `checked_steps` gives, in their fixed order.

    Returns:
        The text, and the names of the steps that changed it.
    """
    mapped, changed = MappedText.of(text), list[str]()
    for name, step in STEPS.items():
        if name in steps and (after := step(mapped)).text != mapped.text:
            mapped = after
            changed.append(name)
    return mapped, tuple(changed)


def checked_steps(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps that are named, once checked, with the packages that they need; "all" stands for every step."""
    names = list(several(steps, "normalisation steps"))
    for name in names:
        if not isinstance(name, str) or name not in ("all", *STEPS):
            raise SettingsError(f"normalisation {shown(name)} is not one of: all, {', '.join(STEPS)}")
    wanted = tuple(STEPS) if "all" in names else tuple(map(str, names))
    for name in wanted:
        STEPS[name](MappedText.of(""))
    return wanted


# --- disguises that matter

# what the steps undo, where an ordinary text seldom has it; quotation marks have ordinary forms
_WORDS = re.compile(r"[^\W\d_]+")
_OTHER_SCRIPTS = re.compile("[\u0251\u0261\u0370-\u03ff\u0400-\u058f\u13a0-\u13ff\u1f00-\u1fff]")
_UNSEEN = re.compile(
    f"[{_IGNORABLE}]+|(?<=\\w)[\ufe00-\ufe0f]|[\ufe00-\ufe0f](?=\\w)|(?<=[A-Za-z])[{_DIRECTIONS}](?=[A-Za-z ])"
)
_SHAPED = re.compile("[" + "".join(f"{chr(codes.start)}-{chr(codes.stop - 1)}" for codes in _SHAPES) + "]+")
_ODD_SPACES = re.compile(f"[{_ODD_SPACE} ]{{2,}}|[{_ODD_SPACE}\u0085\u2028\u2029]")
_ODD_SPACES_AND_TABS = re.compile(f"{_ODD_SPACES.pattern}|\t")
# characters of ordinary texts, in which no step finds anything; two spaces in a row are looked at
_PLAIN = re.compile("[\n -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2015\u2018-\u201f\u2026\u20ac]*")
# of Chinese and Japanese, between which a wide space is ordinary
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_LEAST_DISGUISED = 1 / 20  # for each word, so many of them
_WORD_LENGTH = 8  # characters of a word, in scripts without spaces


def disguises_in(text: str) -> tuple[str, ...]:
    """The steps that would undo something in this text that can cost it a mark: one in twenty words is concerned."""
    capitals = len(text) if _is_capitals(text) else 0
    if _PLAIN.fullmatch(text) and "  " not in text:
        return ("capitals",) if capitals else ()
    least = max(1.0, _LEAST_DISGUISED * max(len(text.split()), len(text) / _WORD_LENGTH))
    found = {"ansi": count_terminal_codes(text), "capitals": capitals}
    odd = _ODD_SPACES_AND_TABS if text.count("\t") > text.count(" ") else _ODD_SPACES
    spaces = _count_within_lines(odd, text)
    if _is_spaced_by_blanks(text):
        found |= {"whitespace": spaces + _count_within_lines(_BLANKS, text), "invisible": _count(_UNSEEN, text)}
    else:
        found |= {"whitespace": spaces, "invisible": _count(_UNSEEN, text) + _count(_BLANKS, text)}
    if not text.isascii():
        marks = _decorations(text)
        found["nfc"] = 0 if marks or unicodedata.is_normalized("NFC", text) else abs(len(text) - len(nfc(text)))
        overridden = sum(len(run[1].split()) for run in _OVERRIDDEN.finditer(text))
        found["invisible"] += _count(_JOINER, text) + overridden
        shaped = sum(not _shapes().keys().isdisjoint(map(ord, run[0])) for run in _SHAPED.finditer(text))
        decorated = len(text.split()) if marks else 0
        found["compatibility"] = shaped + decorated + _count(_OVERLAYS, text) + _count(_ROMAN, text)
        found["homoglyphs"] = _mixed_words(text) if _OTHER_SCRIPTS.search(text) else 0
    return tuple(step for step in STEPS if found.get(step, 0) >= least)


def _count(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


def _count_within_lines(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for space in pattern.finditer(text) if _within_line(text, *space.span()))


def _within_line(text: str, start: int, end: int) -> bool:
    """Whether words stand on both sides: spaces beside signs are ordinary in French, and at line starts in programs."""
    before, behind = text[max(0, start - 1) : start], text[end : end + 1]
    unspaced = text[start:end] == "\u3000" and _UNSPACED.match(before) and _UNSPACED.match(behind)
    return (before in (",", ";") or _is_of_word(before)) and _is_of_word(behind) and not unspaced


def _is_of_word(sign: str) -> bool:
    """Whether this is a letter or a mark on one, in any script."""
    return bool(sign) and unicodedata.category(sign)[0] in "LM"


def _mixed_words(text: str) -> int:
    """The number of words that hold ASCII letters and letters of scripts that look like them."""
    return sum(1 for word in _WORDS.findall(text) if _OTHER_SCRIPTS.search(word) and _ASCII_LETTER.search(word))
