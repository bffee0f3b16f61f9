"""A bias that depends only on position and token: a few rows of numbers in turn (Unigram, PATTERN-MARK)."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.decode.steering import Steering, View
from dgmark.models.denoiser import Denoiser, traits_of


class TableBias:
    """Adds row `order[position % period]` of a table to the logits of each position."""

    def __init__(
        self, rows: Float[np.ndarray, "rows vocab"], order: Int[np.ndarray, " period"], device: torch.device
    ) -> None:
        self._rows = torch.from_numpy(rows.astype(np.float32)).to(device)
        self._order = torch.from_numpy(order.astype(np.int64)).to(device)

    def __call__(self, view: View) -> Tensor:
        """Return the biased logits of the masked positions."""
        row = self._order[view.positions % len(self._order)]
        logits = view.logits_to_propose()
        return logits.add_(self._rows[row[view.masked.nonzero()[:, 1]]])


def table_steering(
    rows: Float[np.ndarray, "rows vocab"], order: Int[np.ndarray, " period"], model: Denoiser
) -> Steering:
    """Return a steering by such a bias on the model's device."""
    return Steering(bias=TableBias(rows, order, traits_of(model).device))
