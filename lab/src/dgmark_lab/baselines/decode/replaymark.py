"""The decode side of ReplayMark: a carrier's draw is repeated until its token matches, at most so many times."""

import torch
from jaxtyping import Float
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.keyed_side import OneKeySide
from dgmark.decode.marks.rules import Step, Window
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.replaymark import Readings
from dgmark_lab.baselines.specs import ReplayMarkSpec


class ReplayMarkSide(OneKeySide):
    """Each carrier has the distribution of its repeated draws, so that one draw from it is as good as all of them."""

    def __init__(self, key: WatermarkKey, slots: int, device: torch.device | str) -> None:
        super().__init__(key, slots, device)
        # of each row: what stands before the block that it writes, and that block's readings
        self._readings: dict[int, tuple[list[int], Readings]] = {}

    @classmethod
    def check_config_for(cls, key: WatermarkKey, config: DecodeConfig) -> None:
        """Refuse greedy decoding, which has no draw to repeat, longer texts than the key's, and other blocks.

        Raises:
            SettingsError: a setting is one of these, or has no meaning here; it names the field.
        """
        super().check_config_for(key, config)
        spec = spec_as(ReplayMarkSpec, key)
        if config.length > spec.text_length:
            raise SettingsError(
                f"{config.length} is above {spec.text_length}, the longest text of this key: make a key with a larger "
                "text_length",
                field="length",
            )
        if config.block_length != spec.block:
            raise SettingsError(
                f"{config.block_length} is not {spec.block}, for which this key was made", field="block_length"
            )
        if config.greedy:
            raise SettingsError("0 leaves no draw to repeat: use one above 0", field="temperature")

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The logits of repeated draws at carriers, and those of the model elsewhere."""
        spec, logits, places = spec_as(ReplayMarkSpec, self.key), step.copied_logits(), step.places
        for canvas in sorted(set(places.canvas.tolist())):
            rows = (places.canvas == canvas).nonzero()[:, 0]
            readings = self._of(step.window, canvas)
            columns = places.column[rows].cpu().numpy()
            carriers = readings.carriers[columns]
            if carriers.any():
                chosen = rows[torch.from_numpy(carriers).to(rows.device)]
                wanted = torch.from_numpy(readings.wanted[columns[carriers]]).to(self.device)
                logits[chosen] = repeated(logits[chosen], wanted, spec, step)
        return logits

    def _of(self, window: Window, canvas: int) -> Readings:
        """The readings of the block that a canvas writes, made once for what stands before it."""
        row, ids = int(window.rows[canvas]), window.ids[canvas, : window.start].tolist()
        padding = next((place for place, token in enumerate(ids) if token != window.mask_id), len(ids))
        before = ids[padding:]
        known = self._readings.get(row)
        if known is None or known[0] != before:
            known = self._readings[row] = before, Readings.of(self.key, before, int(window.positions[canvas, 0]))
        return known[1]


def repeated(
    logits: Float[Tensor, "k vocab"], wanted: Tensor, spec: ReplayMarkSpec, step: Step
) -> Float[Tensor, "k vocab"]:
    """Logits of draws that are repeated until a token is wanted and likely enough, and once more if none was.

    With q the chance of such a token and R draws, the wanted tokens share 1 - (1 - q)^R of the probability, and all
    tokens the rest. At q = .5 and R = 1 a wanted token of probability .4 has .4 / .5 x .5 + .4 x .5 = .6.
    """
    permitted = logits.index_fill(-1, step.forbidden, -torch.inf)
    shares = torch.softmax(permitted.double() / step.temperature, -1)
    accepted = shares * wanted * (shares >= spec.least_likely * shares.amax(-1, keepdim=True))
    chance = accepted.sum(-1, keepdim=True)
    found = 1 - (1 - chance).clamp(min=0) ** spec.draws
    drawn = accepted / chance.clamp(min=torch.finfo(chance.dtype).tiny) * found + shares * (1 - found)
    return (drawn.log() * step.temperature).to(logits.dtype)
