"""One input of a run over rows, and the counts of a run."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from dgmark.errors import DgmarkError, InputError

Row = dict[str, Any]
# the field of a row that holds the hash of the text that it was made from
SOURCE_SHA256 = "source_sha256"
ONE_TEXT = "0"  # the id of a text that is given by itself, which no message shows


@dataclass(frozen=True)
class Item:
    """One text or row that a run works on, or why it cannot be used.

    Attributes:
        row_id: the id of its row; of a row without one its place, such as "texts.jsonl:3"; the name of a document.
        content: what is worked on: a text, token ids, the fields of a row, or what a command makes of these; None if
            it cannot be read.
        error: why it cannot be used, or why nothing could be made of it.
        place: where its row stands in its table, if the id does not say so.
        file: the file of its row, if that is to be stated.
        key: the name of the key that its row names.
        source: fields that a finished row states if it was made from this item.
        kind: the kind of its document, such as "PDF"; None for rows.
        notes: what was left out of the document, and what the reader should know of it or of the text.
        incomplete: whether something was left out of the document.
        uncertain_because: why a text without the mark cannot be called that, if so: "unread", "not_shown" or "markup".
    """

    row_id: str
    content: Any = None
    error: DgmarkError | None = None
    place: str | None = None
    file: str | None = None
    key: str | None = None
    source: Row = field(default_factory=dict)
    kind: str | None = None
    notes: tuple[str, ...] = ()
    incomplete: bool = False
    uncertain_because: str | None = None

    @property
    def name(self) -> str:
        """What a person is told that the item is called."""
        return self.row_id if self.file is None else f"{self.file}:{self.row_id}"

    def failed(self, error: DgmarkError | str) -> "Item":
        """This item with the error that stands in the place of its result; a text is an `InputError`."""
        error = InputError(error) if isinstance(error, str) else error
        return replace(self, error=error.with_traceback(None))  # which would keep what was worked on in memory

    def raised(self) -> DgmarkError:
        """The error to raise if no other item is usable, which names the item."""
        return type(self.error or InputError())(f"{self.name}: {self.error}")

    def error_row(self, schema: int, **known: Any) -> Row:
        """The row that takes its place in the output if it failed, with these fields if they are not None."""
        known = {"file": self.file, "place": self.place, **known}
        stated = {name: value for name, value in known.items() if value is not None}
        return {"id": self.row_id, "error": str(self.error), **stated, "schema": schema}


@dataclass
class Tally:
    """Counts of the rows of one run or file.

    Attributes:
        verdicts: number of scored texts for each verdict; of other results, their number.
        unusable: number of inputs that failed.
        first_unusable: the first of these inputs.
        resumed: number of rows that the file held before the run; the other counts include them.
        skipped: the files of folders whose endings are those of no document, and files of keys.
        disguised: number of texts whose mark a disguise may hide, by the steps that would undo it.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    unusable: int = 0
    first_unusable: Item | None = None
    resumed: int = 0
    skipped: list[str] = field(default_factory=list)
    disguised: Counter[str] = field(default_factory=Counter)

    @property
    def scored(self) -> int:
        """Number of results that are no errors."""
        return self.verdicts.total()

    def failed(self) -> DgmarkError:
        """The error of a run of which some inputs failed: that of the first one."""
        first, number = self.first_unusable or Item(""), self.unusable + self.scored
        error = first.raised()
        if number == 1:
            return error
        return type(error)(f"{self.unusable:,} of {number:,} inputs cannot be used; the first is {error}")

    def count(self, item: Item, made: Any) -> None:
        """Count an item and what was made of it."""
        if item.error is None:
            self.verdicts[getattr(made, "verdict", "made")] += 1
            self.disguised.update(getattr(made, "normalise_would_change", ()))
        else:
            self.first_unusable = self.first_unusable or item
            self.unusable += 1

    def count_row(self, row: Row) -> None:
        """Count a row that an earlier run wrote."""
        self.resumed += 1
        if row.get("error") is None:
            self.verdicts[str(row.get("verdict", "made"))] += 1
            self.disguised.update(row.get("normalise_would_change") or ())
        else:
            self.count(Item(str(row.get("id"))).failed(str(row["error"])), None)
