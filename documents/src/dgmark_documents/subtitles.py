"""Subtitles (.srt, .vtt, .sbv, .ass, .sub, .lrc, .smi) to what is said in them: a running text, without times."""

import html
import re
from collections.abc import Iterator

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode
from dgmark_documents.reading import Reading

_TIME = r"(?:\d{1,3}:)?\d{1,2}:\d{2}(?:[.,:]\d{1,3})?"
_TIMING = re.compile(rf"\s*{_TIME}\s*(?:-->|,)\s*{_TIME}(?:\s.*)?")
_ASIDE = re.compile(r"(WEBVTT|NOTE|STYLE|REGION)(?:[ \t].*)?")
_FRAMES = re.compile(r"\{\d+\}\{\d*\}|\[\d+\]\[\d*\]")  # MicroDVD, MPL2
_LYRIC = re.compile(rf"(?:\[{_TIME}\])+")
_SAMI = re.compile(r"<SAMI\b", re.IGNORECASE)
_SYNC = re.compile(r"<SYNC\b[^<>]*>", re.IGNORECASE)
_ABOUT = re.compile(r"\[[a-z]{2,8}:[^\]]*\]")
_DRAWING = re.compile(r"\{[^{}]*\\p[1-9][^{}]*\}[^{]*")
_STYLES = re.compile(r"<[^<>]*>|\{[\\yYcCfFsSpP][^{}]*\}")
_BREAKS = re.compile(r"\\[Nnh]|\||[ \t]+")
_SPEAKER = ("-", "–", "—")
_TEXT_FIELD = 9  # of a line of .ass, if it names no order of fields


def read_subtitles(content: bytes) -> Reading:
    """Read what is said in subtitles, as one running text; a line that begins with a dash begins a line."""
    text, how = decode(content)
    account = Account()
    said: list[str] = []
    for line in _cues(text.removeprefix("\ufeff").split("\n"), account):
        shown = _BREAKS.sub(" ", html.unescape(_STYLES.sub("", _DRAWING.sub("", line)))).strip()
        if shown and said[-1:] != [shown]:  # captions that roll show each line twice
            said.append(shown)
    running = "".join(f"\n{line}" if line.startswith(_SPEAKER) else f" {line}" for line in said)
    return account.reading(running.strip(), how=tuple(how))


def _cues(lines: list[str], account: Account) -> Iterator[str]:
    """The lines of text, with their styles."""
    if any(line.startswith("Dialogue:") for line in lines):
        return _script_lines(lines, account)
    if any(map(_SAMI.match, lines)):
        return iter(_SYNC.split(" ".join(lines))[1:])
    filled = [line for line in lines if line.strip()]
    if filled and all(_FRAMES.match(line) for line in filled):
        return (_FRAMES.sub("", line, count=1) for line in filled)
    if any(_LYRIC.match(line) for line in filled) and not any(map(_TIMING.fullmatch, filled)):
        return (_LYRIC.sub("", line) for line in filled if not _ABOUT.fullmatch(line.strip()))
    return _timed_lines(lines, account)


def _timed_lines(lines: list[str], account: Account) -> Iterator[str]:
    """The lines behind lines of times, without the numbers before these."""
    block = ""  # what the lines up to the next empty one are: "cue", "aside", or not known yet
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if not line.strip():
            block = ""
        elif _TIMING.fullmatch(line):
            block = "cue"
        elif not block and (found := _ASIDE.fullmatch(line)):
            block = "aside"
            account.add("comments", int(found[1] == "NOTE"))
        elif block != "aside" and not (_TIMING.fullmatch(after) and (not block or line.strip().isdecimal())):
            if not block:
                account.add_not_shown("text without a time", line)
            yield line


def _script_lines(lines: list[str], account: Account) -> Iterator[str]:
    """The texts of the events of .ass and .ssa."""
    field = _TEXT_FIELD
    for line in lines:
        kind, _, values = line.partition(":")
        if kind == "Format" and values.rstrip().endswith("Text"):
            field = values.count(",")
        elif kind == "Dialogue":
            yield values.split(",", field)[-1]
        elif kind == "Comment":
            account.add("comments")
