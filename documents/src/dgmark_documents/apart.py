"""`Apart`: the texts of a document that stand apart from its body, such as headers and notes, while they are read."""

from dgmark_documents.account import Account
from dgmark_documents.text_builder import TextBuilder


class Apart:
    """The texts that stand apart from the body, in the order in which their places were met."""

    def __init__(self) -> None:
        self._builders: dict[tuple[str, str], TextBuilder] = {}

    def at(self, place: str, part: str = "") -> TextBuilder:
        """The builder of what stands at this place, at the beginning of a line.

        Args:
            place: what stands there, such as "headers".
            part: what tells texts of this place apart that are not one text, such as the part of the file.
        """
        builder = self._builders.setdefault((place, part), TextBuilder())
        builder.block()
        return builder

    def put(self, place: str, text: str | None) -> None:
        """Add a line at this place, unless it is empty."""
        if text and text.strip():
            self.at(place).add(text, exact=True)

    def tell(self, account: Account) -> None:
        """Add all texts to an account, as texts beside the body."""
        for (place, _), builder in self._builders.items():
            account.add_beside(place, builder.text)
