"""Signs of markup in a text that should be plain, such as the cell of a table."""

import re

_SIGNS = {
    "HTML or XML": re.compile(
        r"</[A-Za-z][\w:.-]*\s*>|<!--|<(?:br|p|div|span|b|i|u|em|strong|a|ul|ol|li|h[1-6]|img|table|tr|td|font)\b[^<>]*>"
        r"|&(?:nbsp|amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});",
        re.IGNORECASE,
    ),
    "RTF": re.compile(r"\{\\rtf|\\(?:par|pard|plain|fs\d+)\b"),
    "TeX": re.compile(r"\\(?:begin|end|emph|text\w\w|section|item)\b"),
    "codes of a forum": re.compile(r"\[/(?:b|i|u|url|quote|color|size)\]", re.IGNORECASE),
    "codes of a terminal": re.compile("\x1b\\["),
}


def markup_note(text: str) -> str | None:
    """A note if a text holds markup, which stands between its words; None if it holds none."""
    kinds = [kind for kind, sign in _SIGNS.items() if sign.search(text)]
    if not kinds:
        return None
    return f"the text holds signs of markup ({', '.join(kinds)}) between its words: give it without them to be sure"
