"""Settings of a narrator of a few thousand parameters, trained for a few steps."""

from typing import Any

from dgmark_lab.training.narrator.config import NarratorConfig

SETTINGS: dict[str, Any] = {
    "own_texts": {"texts": 8, "batch": 4, "length": 24, "most_repeated": 1.0},
    "adapter": {"rank": 4},
    "rows": {"context": 8, "response": 16, "block_lengths": [4, 8], "batch": 4, "own_share": 0.5},
    "masking": {"ordered_share": 0.5, "spreads": [1.0, 4.0], "largest_weight": 8.0},
    "optimizer": {"lr": 0.01, "mask_lr": 0.05},
    "schedule": {"steps": 8, "warmup_steps": 2, "decay_steps": 3},
    "record": {"log_steps": 1, "evaluate_steps": 4, "evaluate_rows": 8},
}


def settings(**changes: Any) -> NarratorConfig:
    """The settings, checked; `changes` replace whole sections."""
    return NarratorConfig.model_validate(SETTINGS | changes)
