"""A text rewritten passage by passage by a diffusion model that chats: a paraphraser that comes with dgmark."""

import re
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark.decode import generate
from dgmark.errors import InputError
from dgmark_lab.attacks.refill import load_once
from dgmark_lab.attacks.text_edits import ARBITRARY

PROMPT = "Rewrite this passage in other words:"
_BATCH = 32


@dataclass(frozen=True, config=ARBITRARY)
class Rephrase:
    """Ask a dLLM that chats to rewrite each passage in other words, without a mark.

    Attributes:
        model: a loaded model, or its name, folder or hub id.
        words: words of a passage; the last one may be shorter.
        temperature: of the draws.
    """

    model: Any = "narrator"
    words: Annotated[int, Field(ge=1)] = 60
    temperature: Annotated[float, Field(ge=0)] = 0.2

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the rewritten passages, one paragraph each.

        Raises:
            InputError: the model writes nothing in place of a passage.
        """
        words = re.findall(r"\S+\s*", text_of(text))
        if not words:
            return text
        passages = ["".join(words[start : start + self.words]).strip() for start in range(0, len(words), self.words)]
        model = load_once(self.model) if isinstance(self.model, str) else self.model
        length = max(len(model.tokenizer.encode(passage)) for passage in passages)
        made = generate(
            model,
            [f"{PROMPT}\n\n{passage}" for passage in passages],
            key=None,
            chat=True,
            pad=True,
            batch_size=_BATCH,
            cache="prefix",
            seed=int(rng.integers(2**31)),
            length=length + length // 4,
            temperature=self.temperature,
        )
        rewritten = [one.text.strip() for one in made]
        if not all(rewritten):
            raise InputError(f"{model.tokenizer.name} wrote nothing in place of a passage: try another model or seed")
        return "\n\n".join(rewritten)
