"""What names a row: a text, or a whole number, which is spelled in digits."""

from dgmark.arguments.accepted import as_text
from dgmark.arguments.type_checks import is_from, is_id


def id_of_row(value: object) -> str | None:
    """The id of a row as a text; None for what is neither a text nor a whole number."""
    if type(value) in (str, int):  # what most are, looked at no further
        return str(value)
    text = as_text(value)
    if text is None and is_from(value, "pyarrow", "Scalar"):
        try:
            value = value.as_py()  # type: ignore[attr-defined]
        except UnicodeDecodeError:  # Arrow does not look at the bytes of what it calls a string
            return None
    return str(int(value)) if text is None and is_id(value) else text  # type: ignore[call-overload]
