"""A rule of your own, marked green: half of all token ids, by a keyed bit each; a bias of 4 on their logits.

The entry point `green = "green_rule:GREEN"` under `dgmark.rules` adds it to every command; docs/new-rule.md explains.
"""

import hashlib
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic.dataclasses import dataclass

from dgmark.decode import OneKeySide
from dgmark.detection.statistics.p_values import binomial_tail, z_score
from dgmark.detection.statistics.rules import TextTest
from dgmark.watermark.rules import Rule
from dgmark.watermark.spec import WatermarkSpec


@dataclass(frozen=True, kw_only=True)
class GreenSpec(WatermarkSpec):  # noqa: D101
    rule: Literal["green"] = "green"
    prf: ClassVar[str] = "shake256-example-v1"


def green_tokens(key: Any) -> np.ndarray:  # noqa: D103
    bits = hashlib.shake_256(b"green/" + key.secret).digest(-(-key.spec.table_size // 8))
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8))[: key.spec.table_size].astype(bool)


class GreenTest(TextTest):  # noqa: D101
    def __init__(self, key: Any, tokens: Any, settings: Any) -> None:  # noqa: ARG002
        green, self.is_green = green_tokens(key)[np.unique(tokens.ids)], green_tokens(key)[tokens.ids]
        self.scored, self.matched = len(green), int(green.sum())

    def p_value(self) -> float:  # noqa: D102
        return binomial_tail(self.matched, self.scored)

    def uncertain_because(self, share: float, level: float) -> str | None:  # noqa: D102
        return None if binomial_tail(round(0.75 * self.scored), self.scored) / share <= level else "short"

    def fields(self, found: Any) -> dict[str, Any]:  # noqa: ARG002, D102
        z, share = z_score(self.matched, self.scored, 2), self.matched / max(1, self.scored)
        return {"z_score": z, "green_fraction": share, "num_tokens_matched": int(self.is_green.sum())}

    def matched_tokens(self, detection: Any) -> np.ndarray:  # noqa: ARG002, D102
        return self.is_green


class GreenSide(OneKeySide):  # noqa: D101
    def change(self, step: Any) -> torch.Tensor:  # noqa: D102
        return step.copied_logits() + 4.0 * torch.from_numpy(green_tokens(self.key)).to(self.device)


GREEN = Rule(GreenSpec, "green_rule:GreenSide", "green_rule:GreenTest", title="green-list", distribution="green")
