"""DIPPER: paraphrase by an 11-billion-parameter T5 with controls for lexical and order diversity.

Krishna et al. 2023; paper section 4, "Robustness to Post-editing": DIPPER-1 has lexical diversity only, DIPPER-2
also an order diversity of 10. The model's controls say what stays the same: 100 minus the diversity.
"""

import re
from dataclasses import dataclass

import numpy as np

from dgmark.errors import SettingsError
from dgmark_lab.attacks.rewriting import load_rewriter, torch_seed

MODEL = "kalpeshk2011/dipper-paraphraser-xxl"
TOKENIZER = "google/t5-v1_1-xxl"

_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+")


@dataclass(frozen=True)
class Dipper:
    """Paraphrase with DIPPER, a few sentences at a time, with the text rewritten so far as context.

    Attributes:
        lexical: lexical diversity, 0..100; the model was trained on 0, 20, ..., 100.
        order: order diversity, 0..100: 0 is the paper's DIPPER-1, 10 its DIPPER-2.
        interval: sentences that are rewritten together.
        prefix: context before the first sentences, for example the prompt.
        top_p: sampling keeps the likeliest tokens up to this probability.
        max_length: most tokens of one call's output.
        model: folder or hub id of a T5 in DIPPER's layout.
        tokenizer: folder or hub id; None for DIPPER's own.
        device: a torch device, or "auto" for all available ones.
        dtype: name of a torch dtype; None for the checkpoint's.
    """

    lexical: int = 40
    order: int = 0
    interval: int = 3
    prefix: str = ""
    top_p: float = 0.75
    max_length: int = 512
    model: str = MODEL
    tokenizer: str | None = None
    device: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("lexical", self.lexical), ("order", self.order)):
            if not 0 <= value <= 100:
                raise SettingsError(f"{name} diversity {value} is not in 0..100")
        if self.interval < 1 or self.max_length < 1 or not 0 < self.top_p <= 1:
            raise SettingsError("interval and max length must be at least 1, and top-p must be in (0, 1]")

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the paraphrase, in one paragraph, as DIPPER writes it."""
        sentences = [sentence for sentence in _SENTENCE.split(" ".join(text.split())) if sentence]
        if not sentences:
            return text
        name = self.tokenizer or (TOKENIZER if self.model == MODEL else self.model)
        network, tokenizer = load_rewriter("t5", self.model, name, self.device, self.dtype)
        context = " ".join(self.prefix.split())
        written: list[str] = []
        for start in range(0, len(sentences), self.interval):
            prompt = dipper_prompt(
                " ".join(sentences[start : start + self.interval]), self.lexical, self.order, context
            )
            inputs = tokenizer([prompt], return_tensors="pt").to(network.device)
            with torch_seed(rng):
                made = network.generate(**inputs, do_sample=True, top_p=self.top_p, top_k=0, max_length=self.max_length)
            (piece,) = tokenizer.batch_decode(made, skip_special_tokens=True)
            written.append(piece.strip())
            context = f"{context} {piece}".strip()
        return " ".join(written)


def dipper_prompt(sentences: str, lexical: int, order: int, context: str = "") -> str:
    """Return DIPPER's input; it states each diversity as 100 minus its value."""
    head = f"lexical = {100 - lexical}, order = {100 - order}"
    return f"{head} {context} <sent> {sentences} </sent>" if context else f"{head} <sent> {sentences} </sent>"
