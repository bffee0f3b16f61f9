"""`GrowingText`: a text while it is written, as far as it can be read: from its beginning to the first gap."""

from dataclasses import dataclass, field

from dgmark.decode.config import DecodeConfig
from dgmark.decode.steps.canvas import Committed
from dgmark.models.denoiser import Denoiser

# of a character that is not whole yet
_UNFINISHED = "\ufffd"


@dataclass(eq=False)
class GrowingText:
    """What can be read of a row whose tokens come in any order.

    Where the settings insert tokens, `SettledBlocks` gives the commits.

    Attributes:
        tokens: the committed tokens by position.
        joined: the tokens from the beginning to the first gap, to an end token, or to the first one that may change.
        text: their text, as far as `read_on` gave it.
    """

    model: Denoiser
    config: DecodeConfig
    tokens: dict[int, int] = field(default_factory=dict)
    joined: list[int] = field(default_factory=list)
    text: str = ""
    _settled: int = 0

    def commit(self, event: Committed) -> None:
        """Note the commits of a step."""
        self.tokens.update(zip(event.positions, event.token_ids, strict=True))

    def settle(self) -> None:
        """Note that no committed token will change, as at the end of a block."""
        self._settled = len(self.tokens)

    def read_on(self) -> str:
        """The text that became readable since the last call, in whole characters."""
        may_change = self.config.edit_threshold is not None and not self.config.inserts
        before, end = len(self.joined), self._settled if may_change else len(self.tokens)
        stops = {-1, *self.model.end_ids}
        while len(self.joined) < end and (token := self.tokens.get(len(self.joined), -1)) not in stops:
            self.joined.append(token)
        if len(self.joined) == before:
            return ""
        added = readable_after(self.text, self.model.tokenizer.decode(self.joined))
        self.text += added
        return added


def readable_after(sent: str, text: str) -> str:
    """What can be sent of a text whose end may still change, after what was sent: whole characters."""
    return text.rstrip(_UNFINISHED).removeprefix(sent) if text.startswith(sent) else ""
