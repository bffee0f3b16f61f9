"""Word documents (.docx) to text, through mammoth: body, tables, lists, text boxes, notes. Macros are not looked at."""

from typing import BinaryIO

from dgmark.documents.flow import Flow
from dgmark.documents.markup import add_html
from dgmark.documents.packed import Package
from dgmark.documents.reading import MissingLibrary, Reading, Refusal


def read_word(file: BinaryIO, package: Package) -> Reading:
    """Read a Word document; notes stand after the body. Tracked insertions are read, tracked deletions are not.

    Raises:
        Refusal: the document is damaged.
    """
    try:
        import mammoth
    except ModuleNotFoundError as error:
        raise MissingLibrary("mammoth", "A Word document") from error
    package.check_xml()
    file.seek(0)
    try:
        page = mammoth.convert_to_html(
            file,
            convert_image=lambda _image: [],
            include_embedded_style_map=False,
            ignore_empty_paragraphs=False,
            external_file_access=False,
        ).value
    except Exception as error:  # mammoth has no error of its own for damaged files
        raise Refusal(f"is damaged: {type(error).__name__}: {error}") from error
    flow = Flow()
    # in a <body> of its own, as the parser drops white space before the first tag
    add_html(flow, f"<body>{page}</body>".encode(), encoding="utf-8", gap=1, exact=True)
    return Reading(flow.text)
