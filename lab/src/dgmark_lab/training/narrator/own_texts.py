"""Texts written by the base itself, from which an adapted model can learn quickly.

They have the base's own style, so that adapters only need to learn to fill in masked tokens; and sampled below
temperature 1, they are easier to predict than texts by people.
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import LlamaForCausalLM, LogitsProcessorList, RepetitionPenaltyLogitsProcessor

from dgmark.checkpoint.families import BLOCK_LLAMA
from dgmark.checkpoint.tokenizer import Tokenizer, read_tokenizer
from dgmark.cli.console import stderr
from dgmark.rows.item import Item, Row
from dgmark.rows.run import run
from dgmark.rows.sinks import Result, RowFile
from dgmark_lab.evaluate.diversity import repeated_ngrams
from dgmark_lab.training.config import OwnTexts, Sampling

REQUESTS = Path(__file__).parent / "requests.toml"
assert BLOCK_LLAMA.chat is not None
TURN = BLOCK_LLAMA.chat.text([("user", "{prompt}")])


def requests(rng: np.random.Generator) -> Iterator[str]:
    """Yield requests without end: a form, filled with one phrase from each list that it names."""
    lists: dict[str, list[str]] = tomllib.loads(REQUESTS.read_text(encoding="utf-8"))
    forms = lists.pop("forms")
    while True:
        chosen = {name: str(rng.choice(phrases)) for name, phrases in lists.items()}
        who = chosen["who"]
        yield str(rng.choice(forms)).format(**chosen, who_capital=who[0].upper() + who[1:])


def write_own_texts(base: Path, path: Path, settings: OwnTexts) -> None:
    """Let the base in a folder answer requests for stories, a row for each batch; resume an unfinished file.

    The JSON Lines file has, in "texts", token ids of each "prompt" and "text", and the text as "plain" characters.

    Raises:
        ResumeMismatch: the file holds other rows, or texts of other settings.
    """
    batches = -(-settings.texts // settings.batch)
    file = RowFile(path, {"settings": settings.model_dump(exclude={"texts"})})
    base_model = cache(
        lambda: (read_tokenizer(base, base.name), LlamaForCausalLM.from_pretrained(base, dtype=torch.float32))
    )

    def work(items: list[Item]) -> list[Row]:
        return [{"id": item.row_id, "texts": _answers(*base_model(), int(item.row_id), settings)} for item in items]

    def tell(results: list[Result]) -> None:
        for item, row in results:
            kept = len(row["texts"])
            stderr().print(f"{path}: batch {int(item.row_id) + 1} of {batches}, {kept} texts kept")

    run([Item(str(number)) for number in range(batches)], work, file, batch_size=1, on_results=tell)


def _answers(tokenizer: Tokenizer, network: LlamaForCausalLM, number: int, settings: OwnTexts) -> list[Row]:
    """The texts of a batch, but for those that repeat themselves too much."""
    rng = np.random.default_rng((settings.seed, number))
    endless = requests(rng)
    prompts = tokenizer.encode_batch([TURN.format(prompt=next(endless)) for _ in range(settings.batch)])
    seed = int(rng.integers(2**62))
    answers = sample(network, prompts, settings.length, tokenizer.end_ids, settings.sampling, seed)
    return [
        {"prompt": prompt, "text": text, "plain": tokenizer.decode(text)}
        for prompt, text in zip(prompts, answers, strict=True)
        if repeated_ngrams(text) <= settings.most_repeated
    ]


@torch.inference_mode()
def sample(
    network: LlamaForCausalLM,
    prompts: list[list[int]],
    length: int,
    end_ids: tuple[int, ...],
    how: Sampling,
    seed: int,
) -> list[list[int]]:
    """Sample a text after each prompt, with its end token unless `length` cuts it; prompts have no penalty."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[end_ids[0]] * (longest - len(prompt)) + prompt for prompt in prompts])
    present = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    penalty = RepetitionPenaltyLogitsProcessor(how.penalty, prompt_ignore_length=longest)
    generating: Any = network
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = generating.generate(
            input_ids=ids,
            attention_mask=present,
            do_sample=True,
            max_new_tokens=length,
            temperature=how.temperature,
            top_k=how.top_k,
            top_p=how.top_p,
            logits_processor=LogitsProcessorList([penalty]),
            eos_token_id=list(end_ids),
            pad_token_id=end_ids[0],
        )
    texts: list[list[int]] = made[:, longest:].tolist()
    ends = [next((at for at, token in enumerate(text, 1) if token in end_ids), len(text)) for text in texts]
    return [text[:end] for text, end in zip(texts, ends, strict=True)]


def odds(
    logits: Float[Tensor, "texts vocab"], used: Bool[Tensor, "texts vocab"], how: Sampling
) -> tuple[Int[Tensor, "texts k"], Float[Tensor, "texts k"]]:
    """Return (the most likely tokens, their odds up to a factor), as `sample` draws from them.

    Args:
        logits: logits of the next token.
        used: tokens that are in each text.
        how: penalty, temperature, top-k and top-p, applied in this order.
    """
    lowered = torch.where(logits > 0, logits / how.penalty, logits * how.penalty)
    best = (torch.where(used, lowered, logits) / how.temperature).topk(how.top_k, -1)
    chances = best.values.softmax(-1)
    return best.indices, chances * (chances.cumsum(-1) - chances < how.top_p)
