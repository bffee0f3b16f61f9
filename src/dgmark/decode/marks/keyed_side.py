"""`KeyedSide`: the decode side of a rule, which takes a key for each row; and the table's way from keys to it."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.rules import DecodeSide, NoMark, Step, Window
from dgmark.errors import SettingsError
from dgmark.models.host import waits
from dgmark.watermark.key import WatermarkKey


class KeyedSide(DecodeSide):
    """The decode side of a rule: a `DecodeSide` with a key, or none, for each row.

    A class that inherits from this must write its abstract methods and `marked`. The loop makes a side for each batch;
    engines keep one whose rows are slots (`KeyStore`).
    """

    @classmethod
    def check_config_for(cls, key: WatermarkKey, config: DecodeConfig) -> None:  # noqa: ARG003
        """Refuse settings that have no meaning for a key, or take its mark away; by default those of `check_config`.

        Raises:
            SettingsError: there are some; it names the field.
        """
        cls.check_config(config)

    @classmethod
    def kind(cls, key: WatermarkKey) -> Hashable:
        """What keys share whose rows are decoded in one batch; by default only rows of one key are."""
        return key

    @classmethod
    @abstractmethod
    def empty(
        cls, key: WatermarkKey, slots: int, device: torch.device | str, *, fixed_shapes: bool = False
    ) -> "KeyedSide":
        """A side with this many rows without a mark, which may be given this key and keys like it.

        Args:
            key: a key of this rule.
            slots: the number of rows.
            device: the device of candidates and positions.
            fixed_shapes: shapes are to depend on shapes alone, and nothing is to wait for the device, so that a step
                can be captured in a CUDA graph.

        Raises:
            SettingsError: the rule has no steps of fixed shapes.
        """

    @abstractmethod
    def put(self, slot: int, key: WatermarkKey) -> None:
        """Give a row a key, which `check_compatible` has accepted."""

    @abstractmethod
    def check_compatible(self, key: WatermarkKey) -> None:
        """Refuse a key of this rule that no row of this side can have.

        Raises:
            SettingsError: the key does not fit the one that the side was made for.
        """


class OneKeySide(KeyedSide):
    """A decode side of which one key marks all marked rows of a batch: what a rule of few lines inherits from.

    It overrides `change`, or `noise`.

    Attributes:
        key: the key.
        device: the device of candidates and positions.
    """

    def __init__(self, key: WatermarkKey, slots: int, device: torch.device | str) -> None:
        self.key, self.device = key, torch.device(device)
        self._marked = torch.zeros(slots, dtype=torch.bool, device=device)

    @classmethod
    def empty(
        cls, key: WatermarkKey, slots: int, device: torch.device | str, *, fixed_shapes: bool = False
    ) -> "OneKeySide":
        """A side for rows of one key; see `KeyedSide.empty`."""
        if fixed_shapes:
            raise SettingsError(
                f"rule {key.spec.rule} has no steps of fixed shapes, which engines capture: decode with dgmark's own "
                "loop, or make a key of rule bigram"
            )
        return cls(key, slots, device)

    def put(self, slot: int, key: WatermarkKey) -> None:  # noqa: ARG002
        """Mark a row."""
        self._marked[slot] = True

    def check_compatible(self, key: WatermarkKey) -> None:
        """Refuse any other key with a SettingsError."""
        if key != self.key:
            raise SettingsError(f"keys of rule {key.spec.rule} mark no batch together: give each a batch of its own")

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows have the key."""
        return (rows >= 0) & self._marked[rows.clamp(min=0)]

    def logits(self, step: Step) -> Float[Tensor, "k vocab"] | None:
        """The logits that `change` makes, in rows with the key."""
        changed, marked = self.change(step), self.marked(step.places.rows)
        if changed is None or (not waits(marked) and marked.all()):
            return changed
        return torch.where(marked[:, None], changed, step.copied_logits())

    def matched(
        self,
        tokens: Int[Tensor, "canvases window"],
        window: Window,  # noqa: ARG002
        net_bits: Int[Tensor, "canvases window"] | None,  # noqa: ARG002
    ) -> Bool[Tensor, "canvases window"]:
        """Without bits there is nothing to match, so that no candidate fails to."""
        return torch.ones_like(tokens, dtype=torch.bool)

    def change(self, step: Step) -> Float[Tensor, "k vocab"] | None:  # noqa: ARG002
        """The logits of a step as the key changes them, as if all rows had it; None if it leaves them as they are."""
        return None


def decode_side(keys: Sequence[WatermarkKey]) -> type[KeyedSide]:
    """The decode side of the rule that keys share; keys of several rules are a SettingsError."""
    names = sorted({key.spec.rule for key in keys})
    if len(names) > 1:
        raise SettingsError(f"keys of the rules {' and '.join(names)} mark no batch together: give each its own")
    side: type[KeyedSide] = keys[0].rule.decode_side()
    return side


def side_of_rows(
    keys: Sequence[WatermarkKey | None], device: torch.device | str, *, fixed_shapes: bool = False
) -> DecodeSide:
    """The decode side of a batch with these keys, all of one rule; None for a row without a mark.

    Args:
        keys: the key of each row.
        device: the device of candidates and positions.
        fixed_shapes: see `KeyedSide.empty`.

    Raises:
        SettingsError: the keys are of different rules, or mark no batch together, or one has sub-keys and is not one of
            them.
    """
    given = [key for key in keys if key is not None]
    if not given:
        return NoMark()
    side = decode_side(given).empty(given[0], len(keys), device, fixed_shapes=fixed_shapes)
    for row, key in enumerate(keys):
        if key is not None:
            side.check_compatible(key)
            side.put(row, key)
    return side
