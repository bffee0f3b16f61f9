"""Whether a document's reading is text in a language, and what it means for the verdict that parts of it are missing.

Encoded data and letters whose file shows others to its readers hold no mark that could be found. Knows no rule.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.reading.reader import Reader
from dgmark.detection.results.detection import Detection
from dgmark.detection.results.figures import Uncertain
from dgmark.errors import InputError

_WORD = re.compile(r"(?<![^\W\d_])[A-Za-z]+(?![^\W\d_])")
# A text of shuffled letters needs as many tokens as data does, by any tokenizer. Human texts in 30 languages and code
# need at most 0.89 of that in parts of 3,000 characters, and data or exchanged letters at least 0.94; in parts of 600
# characters, human texts need at most 0.965; in parts of 80 characters, 99.4 % need at most 0.97 of the mean
# of eight shufflings (docs/documents.md).
_MOST_TOKENS, _MOST_OF_FEW = 0.92, 0.97
_WINDOW, _WINDOWS = 3000, 10  # characters of a part, and the parts of a text that are looked at
_MIN_LETTERS, _FEW_LETTERS = 40, 1000  # of a part; in less than the first, chance decides
_SHUFFLES = 8  # of few letters, of which one shuffling is by chance
_MOST_STRANGE = 0.5  # of the parts of a text, the share that may be no text
_MIN_REFUSED = 300  # characters of a text that is refused; a shorter one may be in a rare language
_LETTER_SHARE = 0.1  # of the signs of a part, the least that are letters


def of_document(
    detection: Detection,
    reader: Reader,
    content: str | Sequence[int],
    *,
    incomplete: bool,
    uncertain_because: str | None,
) -> Detection:
    """The detection of the text of a document, which is `uncertain` where too much of the document was not read.

    `uncertain_because` says why a text without the mark cannot be called that, if so: "unread", "not_shown" or
    "markup". A text without the mark that does not look like text is an InputError; ids stand in no document.
    """
    if detection.verdict != "watermarked" and not detection.spans and isinstance(content, str):
        strange = share_of_no_language(content, reader.tokenizer)
        if strange > _MOST_STRANGE and len(content) > _MIN_REFUSED:
            raise InputError(
                "does not look like text: its letters make no words of any language, as in encoded data or in a PDF "
                "whose letters stand for others. Give the text itself, or the file under the ending of its kind"
            )
        because = uncertain_because or ("unread" if strange else None)
        if because and detection.verdict == "not_detected":
            detection = replace(detection, verdict="uncertain", uncertain_because=cast(Uncertain, because))
    return replace(detection, incomplete=incomplete)


def share_of_no_language(text: str, tokenizer: Tokenizer) -> float:
    """The share of a text's parts that are not text by the number of tokens that the tokenizer needs for a letter.

    Only words of unaccented Latin letters are looked at, since tokenizers need many tokens for scripts that they do not
    know. A part of which other letters are the most is text, and so is a part of few letters.
    """
    step = max(_WINDOW, len(text) // _WINDOWS)
    parts = [text[start : start + _WINDOW] for start in range(0, len(text), step)]
    return sum(not _is_language(part, tokenizer) for part in parts) / max(1, len(parts))


def _is_language(part: str, tokenizer: Tokenizer) -> bool:
    letters = sum(sign.isalpha() for sign in part)
    signs = sum(not sign.isspace() for sign in part)
    if signs > _MIN_REFUSED and letters < _LETTER_SHARE * signs:
        return False
    words = _WORD.findall(part)
    latin = [*"".join(words)]
    if len(latin) < _MIN_LETTERS or 2 * len(latin) < letters:
        return True
    most, shuffles = (_MOST_TOKENS, 1) if len(latin) > _FEW_LETTERS else (_MOST_OF_FEW, _SHUFFLES)
    chance = random.Random(0)  # noqa: S311 (not for secrets)
    of_shuffled = 0
    for _ in range(shuffles):
        chance.shuffle(latin)
        left = iter(latin)
        shuffled = ["".join(next(left) for _ in word) for word in words]
        of_shuffled += len(tokenizer.encode(" ".join(shuffled)))
    return shuffles * len(tokenizer.encode(" ".join(words))) <= most * of_shuffled
