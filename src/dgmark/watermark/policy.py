"""Which texts are marked, and with which key: what a server allows, and what a request asks for.

Text is marked unless a request says otherwise, and with `enforce` whatever it says. The HTTP service and the engine
adapters read the fields of their requests; this module knows none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey, subkey_of


@dataclass(frozen=True)
class MarkingRequest:
    """What a request says about the mark.

    Attributes:
        enabled: whether the text is to be marked; None if it does not say.
        key: the name of the key to mark with.
        subkey: the number of the sub-key, the payload.
    """

    enabled: bool | None = None
    key: str | None = None
    subkey: int | None = None


@dataclass(frozen=True)
class Mark:
    """What marks a text.

    Attributes:
        name: the name of the key.
        key: the key, or the sub-key. Which sub-key it is stays secret from whoever did not choose it: it would sort
            texts by the bits that they share, which is half the work of whoever steals a key.
        chosen: whether the request chose the sub-key.
    """

    name: str
    key: WatermarkKey
    chosen: bool

    @property
    def drawn(self) -> bool:
        """Whether the sub-key follows from the text's id, so that no second text has it."""
        return not self.chosen and self.key.spec.subkeys > 1


class MarkingRefused(SettingsError):
    """A request asks for a mark that it cannot have; the message is for the client.

    Attributes:
        asked: the field of `MarkingRequest` that is refused.
        forbidden: whether the server could do it, but does not do it for requests.
    """

    def __init__(self, message: str, asked: str, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.asked, self.forbidden = asked, forbidden


@dataclass(frozen=True)
class MarkingPolicy:
    """Which requests are marked, and with which key.

    Attributes:
        keys: the keys by name.
        default: the name of the key of requests that name none.
        enforce: whether every request is marked.
        payloads: whether requests may choose the sub-key.
    """

    keys: Mapping[str, WatermarkKey] = field(repr=False)
    default: str
    enforce: bool = False
    payloads: bool = True

    def choose(self, request: MarkingRequest, text_id: str) -> Mark | None:
        """What marks a text; None for a text without a mark.

        A sub-key that is not chosen follows from the text's id and the key (`dgmark.subkey_of`), so that whoever has
        the key can tell it from the id at any time, and nobody else can.

        Args:
            request: what the request says.
            text_id: the id of the text, which no request can choose twice.

        Raises:
            MarkingRefused: the request may not choose this, or there is no such key or sub-key.
        """
        if request.enabled is False:
            if request.key is not None or request.subkey is not None:
                raise MarkingRefused("a text without a mark has neither a key nor a sub-key", "enabled")
            if self.enforce:
                raise MarkingRefused("every text of this service is marked: a request cannot opt out", "enabled")
            return None
        name = self.default if request.key is None else request.key
        if name not in self.keys:
            raise MarkingRefused(
                f"there is no key {name!r:.80} to mark with; the keys are {', '.join(self.keys)}", "key"
            )
        key, subkey = self.keys[name], request.subkey
        last = key.spec.subkeys - 1
        if subkey is not None and not 0 <= subkey <= last:
            problem = f"sub-key {subkey} is not in 0..{last}" if last else f"key {name!r} has no sub-keys"
            raise MarkingRefused(problem, "subkey")
        if subkey is not None and not self.payloads:
            # texts that all have one sub-key are half the work of whoever steals a key
            raise MarkingRefused(
                "this service draws the sub-key of each text itself: leave it out", "subkey", forbidden=True
            )
        if last:
            key = key.subkey(subkey_of(key, text_id) if subkey is None else subkey)
        return Mark(name, key, chosen=subkey is not None)
