"""The result of a detection: what was found, as a row and in a sentence. Knows nothing of how it was computed."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dgmark.arguments.checks import flag, several
from dgmark.arguments.column_names import Fields
from dgmark.arguments.contents import Content, TextOrIds, content_of
from dgmark.detection.results.finding import ROWS_WITH_PAYLOAD, Finding, Span
from dgmark.detection.results.sentences import summary
from dgmark.errors import SettingsError
from dgmark.watermark.rules import OWN, find_rule

DETECTION_SCHEMA = 1
# raised whenever a text's p-value changes, so that no file mixes p-values of two versions
STATISTICS_VERSION = 1
# the columns of a detection in a table
DETECT_FIELDS: Fields = MappingProxyType(
    {
        "verdict": "string",
        "p_value": "double",
        "num_tokens_scored": "int64",
        "green_fraction": "double",
        "test": "string",
        "subkey": "int64",
        "key_fingerprint": "string",
        "uncertain_because": "string",
        "normalise_would_change": "list<string>",
        "error": "string",
    }
)
# those of its spans
SPAN_FIELDS: Fields = MappingProxyType(
    {"marked_share": "double", "spans": "list<struct<start:int64,end:int64,num_tokens_scored:int64,p_value:double>>"}
)
# the fields of each row between its id and its schema, in order, with the summary in their midst
DETECTION_FIELDS = [field.name for field in fields(Finding) if not field.metadata]
DETECTION_FIELDS.insert(DETECTION_FIELDS.index("guaranteed") + 1, "summary")
# fields of the sub-key found, which only those learn who ask for it
PAYLOAD_FIELDS = tuple(field.name for field in fields(Finding) if field.metadata == ROWS_WITH_PAYLOAD)


@dataclass(frozen=True)
class Detection(Finding):
    """The result for one text and one key; see `Finding` for its fields."""

    @property
    def summary(self) -> str:
        """The verdict, and for a text without the mark that this does not tell who or what wrote it."""
        return summary(self)

    def with_spans(self, spans: Sequence[Span], content: TextOrIds) -> "Detection":
        """This detection with the spans of its text, or of its ids.

        Args:
            spans: what `Detector.spans` found.
            content: the text or ids.

        Raises:
            SettingsError: one of the spans, or the content, is of another type.
        """
        spans = several(spans, "spans")
        for span in spans:
            if not isinstance(span, Span):
                raise SettingsError(f"a span is what Detector.spans finds, not a {type(span).__name__}")
        return replace(self, spans=tuple(spans), marked_share=share_of(spans, content_of(content)))

    def to_row(self, row_id: str, *, payload: bool = False) -> dict[str, Any]:
        """The detection as a JSON row.

        Args:
            row_id: the text's id.
            payload: include the sub-key found and its confidence.
        """
        payload = flag("payload", payload)
        names = [*DETECTION_FIELDS, *(["subkeys_tested"] if self.subkeys_tested > 1 else [])]
        names += PAYLOAD_FIELDS if payload else []
        row = {name: plain(getattr(self, name)) for name in names}
        if not payload:
            for span in row["spans"] or ():
                del span["subkey"]
        return {"id": row_id, **row, "schema": DETECTION_SCHEMA}

    @classmethod
    def arrow_schema(cls, *, payload: bool = False, rules: Sequence[str] = tuple(OWN)) -> Any:
        """The schema of pyarrow of what `to_row` gives, in which no column is of type null, whatever the rows hold.

        Args:
            payload: include the sub-key found and its confidence.
            rules: the rules of the keys, whose figures the column `figures` has the fields of.

        Raises:
            ImportError: pyarrow is not installed.
            SettingsError: `payload` is neither true nor false, or there is no such rule.
        """
        import pyarrow as pa

        kinds = {"id": str, **get_type_hints(cls), "summary": str, "schema": int}
        asked = PAYLOAD_FIELDS if flag("payload", payload) else ()
        names = ["id", *DETECTION_FIELDS, "subkeys_tested", *asked, "schema"]
        figures = [find_rule(rule).test().figures_type for rule in several(rules, "rules")]
        of_rules = {name: kind for figure in figures for name, kind in get_type_hints(figure).items()}
        types = pa.struct([(name, _arrow_type(kind)) for name, kind in of_rules.items()])
        return pa.schema([(name, types if name == "figures" else _arrow_type(kinds[name])) for name in names])


def _arrow_type(kind: Any) -> Any:
    """The type of pyarrow of a field."""
    import pyarrow as pa

    known = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if kind in known:
        return known[kind]
    if is_dataclass(kind):
        return pa.struct([(name, _arrow_type(inner)) for name, inner in get_type_hints(kind).items()])
    first, *_ = get_args(kind)
    if get_origin(kind) is Literal:
        return pa.string()
    return pa.list_(_arrow_type(first)) if get_origin(kind) is tuple else _arrow_type(first)  # which may be None


def plain(value: Any) -> Any:
    """A field as a plain value; `asdict` on all of a detection would copy each of its values."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def share_of(spans: Iterable[Span], content: Content | list[int]) -> float:
    """The share of a text that spans cover, in characters that are not white space; of ids, in ids."""
    covered = sum(_size(content[span.start : span.end]) for span in spans)
    return min(1.0, covered / max(1, _size(content)))  # of two columns of a page, two spans may hold the same lines


def _size(content: Content | list[int]) -> int:
    return len("".join(content.split())) if isinstance(content, str) else len(content)
