"""What no language is, in a document: refused, and never called not marked."""

import base64
import random
import string
from pathlib import Path

import pytest

from dgmark import Detector, detect_file
from dgmark.detection.results.legibility import share_of_no_language
from dgmark.rows.item import Row
from dgmark.rows.jsonl import read_good_rows
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_text

KEY = known_key("unread", rule="bigram")
ROOT = Path(__file__).parents[2]
PROSE = (ROOT / "LICENSE").read_text(encoding="utf-8")[:3000]
MARKED = marked_text(KEY, 600)
POLISH = (
    "Była sobie raz księżniczka, która mieszkała w wysokiej wieży nad brzegiem zimnego morza. Codziennie rano patrzyła "
    "przez okno na statki, które płynęły do dalekich krajów, i marzyła o tym, by kiedyś wyruszyć razem z nimi. "
) * 3


def encoded(text: str) -> str:
    return base64.encodebytes(text.encode()).decode()


def exchanged(text: str) -> str:
    letters = [*string.ascii_lowercase]
    random.Random(1).shuffle(letters)
    return text.lower().translate(str.maketrans(string.ascii_lowercase, "".join(letters)))


@pytest.mark.parametrize(
    "text",
    [PROSE, POLISH, Path(__file__).read_text(encoding="utf-8"), "从前有一个老人和一个老妇人住在海边。" * 40, "short"],
)
def test_text_of_any_language_and_code_looks_like_text(text: str) -> None:
    assert share_of_no_language(text, builtin_tokenizer()) == 0


@pytest.mark.parametrize(
    "text",
    [
        encoded(PROSE),
        exchanged(PROSE),
        PROSE[:1000] + encoded(PROSE * 3),
        "".join(f"&#{ord(one)};" for one in PROSE),
        "".join(f"&#x{ord(one):x};" for one in PROSE),
        PROSE.encode().hex(),
    ],
)
def test_data_and_exchanged_letters_do_not(text: str) -> None:
    assert share_of_no_language(text, builtin_tokenizer()) > 0.5


def scored(path: Path, content: str) -> Row:
    """The row of a document with this content."""
    path.write_text(content)
    detect_file(Detector(KEY), [str(path)], path.with_name("out.jsonl"))
    (row,) = read_good_rows(str(path.with_name("out.jsonl")))
    return row


HEAD = "From: a@example.org\nSubject: tale\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n"
PAGE = f"<html><body><p>{''.join(f'&#{ord(one)};' for one in MARKED)}</p></body></html>"


@pytest.mark.parametrize(
    ("name", "content", "verdict"),
    [
        ("a.mbox", HEAD + encoded(MARKED), "watermarked"),
        ("a.emlx", f"900\n{HEAD}{encoded(MARKED)}", "watermarked"),
        ("a.doc", f"MIME-Version: 1.0\n{HEAD}{encoded(MARKED)}", "watermarked"),
        ("a.doc", PAGE, "watermarked"),
        ("a", f"X-Long: {'x ' * 4000}\nMIME-Version: 1.0\n{HEAD}{encoded(MARKED)}", "watermarked"),
        ("a.txt", exchanged(MARKED), None),
    ],
)
def test_a_document_of_data_is_read_or_refused(name: str, content: str, verdict: str | None, tmp_path: Path) -> None:
    row = scored(tmp_path / name, content)
    assert row.get("verdict") == verdict
    assert verdict or "does not look like text" in row["error"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.html", f"<p>{PROSE}</p><template>{MARKED[:2000]}</template>"), ("a.txt", exchanged(MARKED)[:300])],
    ids=["not read to the end", "short, of exchanged letters"],
)
def test_a_document_that_is_not_read_or_makes_no_words_is_uncertain(name: str, content: str, tmp_path: Path) -> None:
    row = scored(tmp_path / name, content)
    assert (row["verdict"], row["uncertain_because"]) == ("uncertain", "unread")
    assert "much of the document was not read or makes no words" in row["summary"]
    assert name == "a.txt" or "letters in element template were not read" in row["notes"][0]
