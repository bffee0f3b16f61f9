"""dlmserve itself over HTTP, with a toy for LLaDA: a module for a fresh process, which it changes for good."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import torch
from starlette.testclient import TestClient
from torch import Tensor

from dgmark.engines.dlmserve import install
from dgmark.models.toy import ToyDenoiser

TOY = ToyDenoiser(words=80, spread=60.0, end_ids=(), end_bias=-1e3, forbidden_bias=-1e3)


class Tokens:
    """The toy's tokenizer, as far as dlmserve asks one of transformers."""

    pad_token_id, eos_token_id = 5, 1

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return " ".join(message["content"] for message in messages)

    def __call__(self, texts: list[str], **_: Any) -> dict[str, Tensor]:
        ids = torch.tensor([TOY.tokenizer.encode(text) for text in texts])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def batch_decode(self, rows: Tensor, **_: Any) -> list[str]:
        return [TOY.tokenizer.decode(row.tolist()) for row in rows]


class Network:
    """The toy, as a network that is called with padding and a mask of it."""

    config = SimpleNamespace()

    def __call__(self, ids: Tensor, attention_mask: Tensor) -> Any:
        logits = torch.zeros(*ids.shape, TOY.vocab_size, dtype=torch.float64)
        for row, held in enumerate(attention_mask.bool()):
            logits[row, held] = TOY(ids[row : row + 1, held])[0]
        return SimpleNamespace(logits=logits)

    forward = __call__


def answers(keys: str) -> None:
    """Print what dlmserve answers to questions with and without the mark, first in its loop, then alone."""
    from dlmserve import engine
    from dlmserve.api import server

    # the test client runs the application in a thread, where no signal can be handled
    asyncio.SelectorEventLoop.add_signal_handler = lambda *_: None  # type: ignore[method-assign]
    loaded = SimpleNamespace(model=Network(), tokenizer=Tokens(), device=torch.device("cpu"), mask_id=0)
    engine.load_model = lambda **_: loaded
    install({"keys": keys, "key": "many"})
    with TestClient(server.app, "http://localhost") as client:
        print(json.dumps([_answers(client, alone) for alone in (False, True)]))


def _answers(client: TestClient, alone: bool) -> dict[str, Any]:
    question = {"messages": [{"role": "user", "content": "w3 w5 w7"}], "max_tokens": 96, "block_length": 32}
    question |= {"num_denoising_steps": 96, "temperature": 0.5, "force_single_batch": alone}

    def ask(headers: dict[str, str], **more: Any) -> tuple[int, Any]:
        answer = client.post("/v1/chat/completions", json={**question, **more}, headers=headers)
        return answer.status_code, answer.json()

    def text(answer: tuple[int, Any]) -> str:
        assert answer[0] == 200, answer
        return str(answer[1]["choices"][0]["message"]["content"])

    marked, unmarked = ask({}), ask({"dgmark": "false"})
    refused = {"payload 64": ask({"dgmark-payload": "64"}), "leap": ask({}, use_local_leap=True)}
    return {
        "id": marked[1]["id"],
        "marked": text(marked),
        "unmarked": text(unmarked),
        **{name: (status, str(body)) for name, (status, body) in refused.items()},
    }
