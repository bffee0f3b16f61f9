r"""The words of a text without the signs of markup around them, whatever the markup language.

A text whose words stand in markup one by one (`**no** **time**`, `\emph{no} \emph{time}`) has other tokens than the
words, so that their mark is lost. Signs are found by the constructs that languages share; no language is parsed, since
a text may mix them, and may be cut out of a document. Runs in time that grows with the length of the text.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterator

import numpy as np

from dgmark.detection.reading.disguises.mapped_text import MappedText

_SIGNS = r"*_`[]{}<>\~=|&@'/+^"
_FEWEST_SIGNS = 1 / 16  # for each space, the signs from which on a text is looked at
_LEAST_TOUCHED = 1 / 8  # the share of words that known signs touch, from which on they are left out

Edits = Iterator[tuple[int, int, str]]


def without_markup(text: str) -> tuple[MappedText, float]:
    """The text without signs of markup, and the share of its words that known signs touch.

    A text in which these touch few words keeps them. Signs that stand at the beginnings of lines, as in lists, are
    left.
    """
    unchanged = MappedText.of(text)
    spaces = text.count(" ") + text.count("\n") + 1
    if sum(map(text.count, _SIGNS)) < _FEWEST_SIGNS * spaces:
        return unchanged, 0.0
    mapped = unchanged
    for find in (_comments, _pod, _tags, *(_TEX if _COMMAND.search(text) else ()), *_CONSTRUCTS, _entities):
        mapped = mapped.edited(find(mapped.text))
    touched = _touched(mapped)
    return mapped if touched > _LEAST_TOUCHED else unchanged, touched


def _touched(mapped: MappedText) -> float:
    """The share of words beside which, or within which, something was left out."""
    words = [chunk.span() for chunk in re.finditer(r"\S+", mapped.text) if re.search(r"\w", chunk[0])]
    if not words:
        return 0.0
    places = np.concatenate([[-1], mapped.places, [mapped.places[-1] + 1]])  # as if after and before other characters
    breaks = np.flatnonzero(np.diff(places) != 1)
    if not len(breaks):
        return 0.0
    starts, ends = np.array(words).T
    return float(np.mean(np.searchsorted(breaks, ends, "right") > np.searchsorted(breaks, starts)))


def _construct(pattern: str, flags: int = 0) -> Callable[[str], Edits]:
    """Finds a construct: its group `kept`, or else its last group, stays; what stands around it goes."""
    compiled = re.compile(pattern, flags)
    group = compiled.groupindex.get("kept", compiled.groups)

    def find(text: str) -> Edits:
        for found in compiled.finditer(text):
            kept = found.span(group) if group and found[group] is not None else (found.end(), found.end())
            yield found.start(), kept[0], ""
            yield kept[1], found.end(), ""

    return find


def _replaced(pattern: str, new: str, flags: int = 0) -> Callable[[str], Edits]:
    """Finds a construct in whose place something else stands."""
    compiled = re.compile(pattern, flags)
    return lambda text: ((found.start(), found.end(), new) for found in compiled.finditer(text))


# --- HTML and XML

_comments = _construct(r"<!--(?:(?!<!--|-->).)*-->", re.DOTALL)
_POD = _construct(r"\b[BCFIL]<([^<>\n]{1,300})>")
_TAG = re.compile(r"</?([A-Za-z][\w:.-]*)(?:\s[^<>]*)?/?>|<![A-Za-z][^<>]*>|<\?[A-Za-z][^<>]*>")
_CLOSING = re.compile(r"</([A-Za-z][\w:.-]*)\s*>")
_UNCLOSED = frozenset(("br", "hr", "img", "input", "wbr", "meta", "link", "p", "li", "tr", "td", "th"))
_INLINE = frozenset((
    "a", "abbr", "b", "big", "cite", "code", "del", "dfn", "em", "font", "i", "img", "input", "ins", "kbd", "mark",
    "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var", "wbr",
))  # fmt: skip
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,30});")


def _pod(text: str) -> Edits:
    """Perl's B<words>, in texts without tags."""
    return iter(()) if "</" in text else _POD(text)


def _tags(text: str) -> Edits:
    """The tags of elements that the text closes, so that the angle brackets of a program are none."""
    closed = {name.lower() for name in _CLOSING.findall(text)} | _UNCLOSED
    for found in _TAG.finditer(text):
        name = (found[1] or "").lower()
        if not name or name in closed:
            yield found.start(), found.end(), "" if name in _INLINE else "\n"


def _entities(text: str) -> Edits:
    for found in _ENTITY.finditer(text):
        meant = html.unescape(found[0]).replace("\u00a0", " ").replace("\u00ad", "")
        if meant != found[0]:
            yield found.start(), found.end(), meant


# --- TeX

# what a text in TeX has
_COMMAND = re.compile(r"\\[A-Za-z]{2,}\*?(?:\[[^\[\]]{0,200}\])?\{|\{\\[A-Za-z]{2,} ")
# TeX's signs of accents, and the accents that Unicode puts after a letter
_ACCENTS = dict(
    zip("\"'`^~=.uvHckr", "\u0308\u0301\u0300\u0302\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a", strict=True)
)
_ACCENT = re.compile(r"""\\(["'`^~=.]|[uvHckr](?=\{))(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))""")


def _accents(text: str) -> Edits:
    r"""The letters with TeX's accents, such as \\'e."""
    for found in _ACCENT.finditer(text):
        letter = unicodedata.normalize("NFC", (found[2] or found[3]) + _ACCENTS[found[1]])
        if len(letter) == 1:
            yield found.start(), found.end(), letter


_TEX = (
    _accents,
    _construct(r"(?<!\\)%[^\n]*"),
    _construct(
        r"\\(?:documentclass|usepackage|begin|end|label|[a-z]{0,4}ref|cite[a-z]{0,8}|bibliography(?:style)?|input|"
        r"includegraphics|include|[vh]space|setlength|(?:re)?newcommand|(?:this)?pagestyle|hypersetup|index)\*?"
        r"(?:\[[^\[\]]{0,200}\]|\{[^{}]{0,200}\}){0,4}"
    ),
    _construct(r"\\(?:href|(?:text)?color(?:box)?|foreignlanguage|hyperref|raisebox|scalebox)\*?\{[^{}]{0,500}\}"),
    _replaced(r"\\\\(?:\[[^\[\]]{0,50}\])?\*?|\\(?:par|newline)(?![A-Za-z])", "\n"),
    _replaced(r"~|\\[ ,;:!]|\\(?:quad|qquad|space|enspace)(?![A-Za-z])(?:\{\})?", " "),
    _construct(r"\\[A-Za-z]+\*?(?:\[[^\[\]]{0,200}\])?(?=\{)|\\[A-Za-z]+\s*|\\-"),
    _construct(r"\\([#$%&_{}])|[{}]"),
)


# --- Markdown, reStructuredText, Org, AsciiDoc, wikis, forums

_INNER = r"[^\[\]\n]{1,300}"


def _paired(sign: str, *, within_words: bool = False) -> Callable[[str], Edits]:
    """Finds text between two equal runs of a sign."""
    before, behind = ("", "") if within_words else (rf"(?<![\w{sign}])", rf"(?![\w{sign}])")
    inner = rf"(?=[^\s{sign}])(?P<kept>(?:[^{sign}\n]|\n(?!\n)){{1,300}})(?<=[^\s{sign}])"
    return _construct(rf"{before}(?P<run>[{sign}]{{1,5}}){inner}(?P=run){behind}")


_CODE = re.compile(r"\[/?([A-Za-z*]{1,10})(?:=[^\[\]\n]{1,100})?\]")
_CLOSING_CODE = re.compile(r"\[/([A-Za-z]{1,10})\]")


def _forum_codes(text: str) -> Edits:
    """The codes of forums, as in [b]words[/b], that the text closes."""
    closed = {name.lower() for name in _CLOSING_CODE.findall(text)}
    return ((found.start(), found.end(), "") for found in _CODE.finditer(text) if found[1].lower() in closed)


_CONSTRUCTS = (
    _forum_codes,
    # [[target][words]], [[target|words]], [[words]], [words](target), [words][number], [https://target words]
    _construct(rf"\[\[(?:{_INNER}\]\[|[^\[\]|\n]{{1,300}}\|)?({_INNER})\]\]"),
    _construct(rf"!?\[({_INNER})\]\([^()\n]{{0,1000}}\)"),
    _construct(rf"\[({_INNER})\]\[[^\[\]\n]{{0,100}}\]"),
    _construct(rf"\[[a-z]{{2,10}}:\S{{1,500}} ({_INNER})\]"),
    _construct(r"^ {0,3}\[[^\[\]\n]{1,100}\]: *\S[^\n]*$", re.MULTILINE),  # what numbers and names of links stand for
    _construct(r"\[\^[^\[\]\s]{1,50}\]"),
    # AsciiDoc's link:target[words], <<target,words>>; wiki's {{name|words}}
    _construct(rf"\b(?:link:|xref:|https?://)[^\s\[\]]{{0,500}}\[({_INNER})\]"),
    _construct(r"<<[^<>,\n]{1,200},([^<>\n]{1,300})>>"),
    _construct(r"\{\{(?:[^{}|\n]{1,100}\|){1,5}([^{}|\n]{1,300})\}\}"),
    # reStructuredText's :role:`words <target>`, `words <target>`__, `words`:role:
    _construct(
        r"(?::[a-z][\w:.+-]{0,50}:)?`([^`<\n]{1,300}?)(?: ?<[^<>`\n]{1,500}>)?`(?:_{1,2}|:[a-z][\w.+-]{0,50}:)?"
    ),
    # texinfo's @emph{words}, troff's \fBwords\fP
    _construct(r"@[a-z]{1,20}\{([^{}\n]{1,300})\}"),
    _construct(r"\\f(?:[BIRPC]|\([A-Z]{2}|\[[A-Z]{0,3}\])"),
    _paired("`", within_words=True),
    _paired(r"*", within_words=True),
    _paired(r"_"),
    _paired(r"~", within_words=True),
    _paired(r"="),
    _construct(r"(?P<run>'{2,5})(?=[^\s'])(?P<kept>[^\n]{1,300}?)(?<=[^\s'])(?P=run)"),
    _construct(r"(?<![\w/+|^])(?P<run>/{1,2}|\+{1,2}|\|{1,2}|\^)(?P<kept>\w[^\s/+|^]{0,60})(?P=run)(?![\w/+|^])"),
    _construct(r"\\([\\*_`\[\]#<>~{}()!.+|-])|\\ (?=[:*`])"),
)  # fmt: skip
