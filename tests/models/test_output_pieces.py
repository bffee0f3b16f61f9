"""Logits in pieces are those of the network, and no more than a few positions are there at a time."""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedModel

from dgmark.models.language_model import LanguageModel
from dgmark.models.output_pieces import PIECE_POSITIONS, has_pieces, logits_in_pieces
from support.cases import data

SIZES: dict[str, Any] = data(__file__, "sizes")


def network(model_type: str) -> PreTrainedModel:
    config = CONFIG_MAPPING[model_type](**SIZES)
    entry: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made: PreTrainedModel = (entry[0] if isinstance(entry, tuple) else entry)(config)
    made.train(False).requires_grad_(False)
    return made


# a cap and a scale after the output layer are the classes' own, as is what stands before it in OPT
@pytest.mark.parametrize(
    ("model_type", "pieces"), [("llama", True), ("gemma2", True), ("cohere", True), ("gpt2", True), ("opt", False)]
)
def test_pieces_are_the_logits_of_classes_that_can_give_them(model_type: str, pieces: bool) -> None:
    made = network(model_type)
    assert has_pieces(made, torch.arange(8)[None]) is pieces
    if pieces:
        ids = torch.arange(3 * 401).view(3, 401) % 97
        found = [*logits_in_pieces(made, ids, first=7)]
        whole = made(input_ids=ids, use_cache=False).logits[:, 7:]
        torch.testing.assert_close(torch.cat(found, 1), whole, rtol=1e-5, atol=1e-5)
        assert max(piece.shape[0] * piece.shape[1] for piece in found) <= PIECE_POSITIONS


@pytest.mark.parametrize("can", [True, False])
def test_a_model_scores_by_pieces_if_its_class_can(monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    model = LanguageModel(device="cpu", dtype="fp32")
    assert model._has_pieces
    text = "Once upon a time there was a small fox. " * 40
    expected = model.surprisals([text])[0][1]
    whole = list[int]()
    logits = model.logits

    def counted(ids: torch.Tensor) -> torch.Tensor:
        whole.append(ids.shape[1])
        return logits(ids)

    monkeypatch.setattr(model, "logits", counted)
    monkeypatch.setattr(model, "_has_pieces", can)
    torch.testing.assert_close(model.surprisals([text])[0][1], expected, rtol=1e-4, atol=1e-4)
    assert bool(whole) is not can
