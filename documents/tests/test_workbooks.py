"""Workbooks: each row of the column, and what the file holds beside its cells counted."""

import io
import random
import re
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import pytest
from openpyxl import Workbook
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.worksheet.datavalidation import DataValidation

from dgmark.errors import InputError
from dgmark.rows.documents import Document
from dgmark_documents.reading import Limits
from dgmark_documents.workbook import read_workbook
from dgmark_documents.zip_archive import ZipArchive
from support.documents import document_of_reading
from support.office_documents import packed, with_part
from support.unmarked_texts import PROSE

SOURCE = " ".join((PROSE / "willows.txt").read_text(encoding="utf-8").split())
BODY = [SOURCE[at : at + 300].strip() for at in range(0, 3000, 300)]
# stands beside the cells
TEXT = " ".join(re.sub('[&"]', "", (PROSE / "time_machine.txt").read_text(encoding="utf-8")).split())[:1500].strip()
SHORT = TEXT[:80]

Change = Callable[[Any], object]  # of a sheet


def workbook(change: Change | None = None) -> bytes:
    book = Workbook()
    sheet = book.active
    sheet.title = "Answers"
    for row in [("id", "text", "note"), *((f"r{n}", text, "x") for n, text in enumerate(BODY))]:
        sheet.append(row)
    if change:
        change(sheet)
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


def shared(content: bytes, *others: str) -> bytes:
    """The workbook with its strings in a part of their own, as Excel writes them, and others there that no cell has."""
    strings: list[str] = []

    def share(found: re.Match[str]) -> str:
        strings.append(found[2])
        return f'<c {found[1]} t="s"><v>{len(strings) - 1}</v></c>'

    with zipfile.ZipFile(io.BytesIO(content)) as source:
        parts = {name: source.read(name).decode() for name in source.namelist()}
    for name in parts:
        if name.startswith("xl/worksheets/sheet"):
            cells = r'<c ([^<>]*) t="inlineStr"><is>(.*?)</is></c>'
            parts[name] = re.sub(cells, share, parts[name], flags=re.DOTALL)
    items = "".join(f"<si>{one}</si>" for one in (*strings, *(f"<t>{other}</t>" for other in others)))
    parts["xl/sharedStrings.xml"] = (
        f'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">{items}</sst>'
    )
    assert strings
    return packed(parts)


def read(content: bytes, column: str = "text") -> Document:
    with tempfile.TemporaryFile() as opened:
        file = cast(BinaryIO, opened)
        file.write(content)
        return document_of_reading(
            read_workbook(file, ZipArchive(file, Limits()), column), None if column == "text" else column
        )


# --- rows


def test_random_workbooks_come_back_row_by_row() -> None:
    dice = random.Random(1)
    letters = "ab \"\t,;|\n'<>&_x000D_é漢"
    for _ in range(40):
        texts = ["".join(dice.choices(letters, k=dice.randint(1, 40))).strip() or "a" for _ in range(8)]
        book = Workbook()
        first, second = book.active, book.create_sheet("Second")
        for sheet, rows in ((first, texts[:5]), (second, texts[5:])):
            for _ in range(dice.randint(0, 2)):
                sheet.append([])
            sheet.append(["note", " Text"])
            for text in rows:
                sheet.append(["x", text])
                sheet.cell(sheet.max_row, 2).data_type = "s"  # no formula
        content = io.BytesIO()
        book.save(content)
        for made in (content.getvalue(), shared(content.getvalue())):
            assert [text for _, text in read(made).rows] == texts


def test_rows_are_named_by_their_ids_or_places() -> None:
    def change(sheet: Any) -> None:
        sheet["A3"], sheet["B5"] = None, None
        sheet.insert_rows(1, 2)
        sheet.delete_rows(12)

    reading = read(workbook(change))
    assert [row_id for row_id, _ in reading.rows] == ["r0", "Answers:5", "r2", "r3", "r4", "r5", "r6", "r7", "r9"]
    assert reading.rows[3][1] == ""


def test_an_id_that_is_a_number_is_what_the_workbook_shows() -> None:
    def change(sheet: Any) -> None:
        sheet["A2"], sheet["A3"], sheet["A4"] = 7, 7.5, 1e300

    assert [row_id for row_id, _ in read(workbook(change)).rows][:3] == ["7", "7.5", "1e+300"]


@pytest.mark.parametrize("name", ["text", "TEXT", " Text "])
def test_two_columns_of_one_name_are_refused(name: str) -> None:
    with pytest.raises(InputError, match='has 2 columns "text"'):
        read(workbook(lambda sheet: sheet.__setitem__("D1", name)))


# --- what stands beside the cells


def header(sheet: Any) -> None:
    sheet.oddHeader.center.text = TEXT


def message(sheet: Any) -> None:
    for row in range(8):  # Excel shows up to 255 characters of each
        validation = DataValidation(type="whole", prompt=f'"{TEXT[row * 150 :][:150]}')
        validation.add(f"C{row + 2}")
        sheet.add_data_validation(validation)


def number_format(sheet: Any) -> None:
    sheet["D1"] = "number"
    for row in range(8):
        sheet.cell(row + 2, 4, row).number_format = f'"{TEXT[row * 150 :][:150]}" 0'


def chart(sheet: Any) -> None:
    made = BarChart()
    made.title = TEXT
    made.add_data(Reference(sheet, min_col=4, min_row=1, max_row=5))
    sheet.add_chart(made, "F2")


def comments(sheet: Any) -> None:
    words = TEXT.split()
    for number in range(0, len(words), 6):
        sheet.cell(2 + number // 18, 1 + number // 6 % 3).comment = Comment(" ".join(words[number : number + 6]), "me")


BESIDE: dict[str, Change] = {
    "comment": lambda sheet: setattr(sheet["B2"], "comment", Comment(TEXT, "me")),
    "comments of few words": comments,
    "header": header,
    "input messages": message,
    "number formats": number_format,
    "title of a chart": chart,
    "column without a name": lambda sheet: sheet.__setitem__("D3", TEXT),
    "words in columns without a name": lambda sheet: [
        sheet.cell(2 + number // 40, 4 + number % 40, word) for number, word in enumerate(TEXT.split())
    ],
    "formula without a value": lambda sheet: sheet.__setitem__("D3", f'="{TEXT}"'),
}


@pytest.mark.parametrize("construct", BESIDE)
def test_a_text_beside_the_cells_is_counted(construct: str) -> None:
    reading = read(workbook(BESIDE[construct]))
    assert [text for _, text in reading.rows] == BODY
    counts = re.findall(r"([\d,]+) letters in", " ".join(reading.notes))
    assert sum(int(count.replace(",", "")) for count in counts) > 600
    assert reading.uncertain_because == "unread"


PARTS = {
    "text box": ("xl/drawings/drawing1.xml", f'<d xmlns:a="urn:a"><a:t>{TEXT}</a:t></d>'),
    "text box of words": ("xl/drawings/drawing1.xml", "<d>" + "".join(f"<t>{w} </t>" for w in TEXT.split()) + "</d>"),
    "threaded comment": ("xl/threadedComments/threadedComment1.xml", f"<T><c><text>{TEXT}</text></c></T>"),
    "control": ("xl/drawings/vmlDrawing1.vml", f"<xml><v:textbox><div><font>{TEXT}</font></div></v:textbox></xml>"),
}


ELSEWHERE = {name: with_part(workbook(), *part) for name, part in PARTS.items()}
ELSEWHERE["strings that no cell shows"] = shared(workbook(), "x", TEXT)


@pytest.mark.parametrize("construct", ELSEWHERE)
def test_a_text_in_another_part_is_counted(construct: str) -> None:
    reading = read(ELSEWHERE[construct])
    assert [text for _, text in reading.rows] == BODY
    assert (reading.uncertain_because, len(reading.notes)) == ("unread", 1)


# --- ordinary workbooks


def formatted(sheet: Any) -> None:
    """What ordinary workbooks have: formulas, lists to choose from, a foot, formats, a comment, a hidden row."""
    sheet["D1"] = "length"
    for row in range(2, 12):
        sheet.cell(row, 4, f'=IF(LEN(B{row})>100,"long","short")&TEXT(A{row},"0")')
    validation = DataValidation(type="list", formula1='"x,y,z"', prompt="Choose one.")
    validation.add("C2:C11")
    sheet.add_data_validation(validation)
    sheet.oddFooter.center.text = '&"Times New Roman,Regular"&12Page &P of &N'
    sheet["E1"], sheet["E2"] = "price", 5
    sheet["E2"].number_format = '#,##0.00 "EUR"'
    sheet["B2"].comment = Comment("Check this.", "me")
    sheet.row_dimensions[4].hidden = True
    sheet["B3"] = CellRichText(BODY[1][:100], TextBlock(InlineFont(b=True), BODY[1][100:200]), BODY[1][200:])


@pytest.mark.parametrize("form", [bytes, shared])
def test_an_ordinary_workbook_is_not_uncertain(form: Callable[[bytes], bytes]) -> None:
    reading = read(form(workbook(formatted)))
    assert [text for _, text in reading.rows] == BODY
    assert reading.uncertain_because is None
    assert reading.notes[0] == "10 formulas without a value are left out"


@pytest.mark.parametrize("form", [bytes, shared])
def test_a_workbook_with_cells_alone_has_no_notes(form: Callable[[bytes], bytes]) -> None:
    reading = read(form(workbook()))
    assert (reading.notes, reading.pages, reading.text) == ((), 1, "")


def test_other_sheets_and_columns_are_noted() -> None:
    def change(sheet: Any) -> None:
        other = sheet.parent.create_sheet("Other")
        other.append(["answer"])
        other.append([TEXT])
        for row in range(2, 12):
            sheet.cell(row, 3, SHORT)

    reading = read(workbook(change))
    sheets, columns = reading.notes
    assert sheets == '1 of its 2 sheets have no column "text" and are left out'
    assert re.match(r'\d+ letters stand in columns other than "text", most of them in "note", and were', columns)
    assert reading.uncertain_because is None


def test_a_hidden_sheet_is_read() -> None:
    def change(sheet: Any) -> None:
        other = sheet.parent.create_sheet("Other")
        other.append(["text"])
        other.append([TEXT])
        other.sheet_state = "hidden"

    assert read(workbook(change)).rows[-1] == ("Other:2", TEXT)
