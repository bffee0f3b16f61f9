"""Paraphrases by language models, loaded once, by folder or hub id. Code in their checkpoints is never run.

DIPPER (Krishna et al. 2023) is an 11-billion-parameter T5 with controls for lexical and order diversity; the paper's
DIPPER-1 has lexical diversity only, its DIPPER-2 also an order diversity of 10. The paper's other paraphraser is Llama
3 8B Instruct at temperature 0.2, asked for at most 256 tokens (appendix, "Llama Paraphrase Attack").
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import torch
import transformers
from pydantic import Field
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark.checkpoint.folder import first_line
from dgmark.errors import InputError, MissingExtra, ModelNotFound, SettingsError
from dgmark.models.load import device_named
from dgmark_lab.chat_endpoint import ChatEndpoint

PROMPT = (
    "As an expert copy-editor, please rewrite the following text in your own voice while ensuring that the final "
    "output contains the same information as the original text and has roughly the same length. Please paraphrase all "
    "sentences and do not omit any crucial details. Additionally, please take care to provide any relevant information "
    "about public figures, organizations, or other entities mentioned in the text to avoid any potential "
    "misunderstandings or biases. Respond only with the paraphrased text."
)
LLAMA = "meta-llama/Meta-Llama-3-8B-Instruct"
DIPPER = "kalpeshk2011/dipper-paraphraser-xxl"
DIPPER_TOKENIZER = "google/t5-v1_1-xxl"

_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+")

Percent = Annotated[int, Field(ge=0, le=100)]


@dataclass(frozen=True)
class Dipper:
    """Paraphrase with DIPPER, a few sentences at a time, with the text rewritten so far as context.

    Attributes:
        lexical: lexical diversity, 0..100; the model was trained on 0, 20, ..., 100.
        order: order diversity, 0..100: 0 is the paper's DIPPER-1, 10 its DIPPER-2.
        interval: sentences that are rewritten together.
        model: folder or hub id of a T5 in DIPPER's layout.
        device: a torch device, or "auto" for all available ones.
        dtype: name of a torch dtype; None for the checkpoint's.
    """

    lexical: Percent = 40
    order: Percent = 0
    interval: Annotated[int, Field(ge=1)] = 3
    model: str = DIPPER
    device: str | None = None
    dtype: str | None = None

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the paraphrase, in one paragraph, as DIPPER writes it."""
        text = text_of(text)
        sentences = [sentence for sentence in _SENTENCE.split(" ".join(text.split())) if sentence]
        if not sentences:
            return text
        name = DIPPER_TOKENIZER if self.model == DIPPER else self.model
        network, tokenizer = load_rewriter("T5ForConditionalGeneration", self.model, name, self.device, self.dtype)
        # DIPPER's input states each diversity as 100 minus its value
        head = f"lexical = {100 - self.lexical}, order = {100 - self.order}"
        context, written = "", list[str]()
        for start in range(0, len(sentences), self.interval):
            together = " ".join(sentences[start : start + self.interval])
            question = " ".join([head, *([context] if context else []), f"<sent> {together} </sent>"])
            inputs = tokenizer([question], return_tensors="pt").to(network.device)
            with _torch_seed(rng):
                made = network.generate(**inputs, do_sample=True, top_p=0.75, top_k=0, max_length=512)
            (piece,) = tokenizer.batch_decode(made, skip_special_tokens=True)
            written.append(piece.strip())
            context = f"{context} {piece}".strip()
        return " ".join(written)


@dataclass(frozen=True)
class Paraphrase:
    """Paraphrase with an instruction-tuned language model, here or on a server.

    Attributes:
        model: folder or hub id of a causal language model of transformers; or the address of a server with OpenAI's
            interface, with #NAME after it if it serves several models.
        temperature: sampling temperature; 0 is greedy.
        max_tokens: most tokens of the answer.
        device: a torch device, or "auto" for all available ones.
        dtype: name of a torch dtype; None for the checkpoint's.
    """

    model: str = LLAMA
    temperature: Annotated[float, Field(ge=0)] = 0.2
    max_tokens: Annotated[int, Field(ge=1)] = 256
    device: str | None = None
    dtype: str | None = None

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the paraphrase."""
        text = text_of(text)
        if not text.strip():
            return text
        content = f"{PROMPT}\n\n{text}"
        served = self.model.startswith(("http://", "https://"))
        written = self._served(content, rng) if served else self._own(content, rng)
        if not written:
            raise InputError(f"{self.model} answered with an empty text")
        return written

    def _served(self, content: str, rng: np.random.Generator) -> str:
        """What the model on the server answers.

        Raises:
            InputError: it refuses to rewrite this text.
            ModelError: the server does not answer.
        """
        answer = ChatEndpoint.at(self.model).answer(
            content, max_tokens=self.max_tokens, temperature=self.temperature, seed=int(rng.integers(2**31))
        )
        if answer.refused:
            raise InputError(f"{self.model} refuses to rewrite this text: {answer.text}")
        return answer.text.strip()

    def _own(self, content: str, rng: np.random.Generator) -> str:
        """What the model that is loaded here answers."""
        network, tokenizer = load_rewriter("AutoModelForCausalLM", self.model, self.model, self.device, self.dtype)
        if tokenizer.chat_template:
            turn = [{"role": "user", "content": content}]
            inputs = tokenizer.apply_chat_template(
                turn, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
        else:
            inputs = tokenizer(content + "\n\n", return_tensors="pt")
        inputs = inputs.to(network.device)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        sampling = {"temperature": self.temperature, "top_k": 0} if self.temperature else {}
        with _torch_seed(rng):
            made = network.generate(
                **inputs, max_new_tokens=self.max_tokens, pad_token_id=pad, do_sample=bool(sampling), **sampling
            )
        return str(tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip())


@lru_cache(maxsize=2)
def load_rewriter(kind: str, name: str, tokenizer: str, device: str | None, dtype: str | None) -> tuple[Any, Any]:
    """Load a transformers model of a class (`kind`), in evaluation mode, and its tokenizer, by folder or hub id.

    The device "auto" takes all available ones (and needs accelerate), None the GPU if there is one; the dtype None is
    the checkpoint's own.

    Raises:
        MissingExtra: a package is not installed.
        ModelNotFound: the model or tokenizer is unavailable.
        SettingsError: the device or dtype does not exist here.
    """
    number_format = getattr(torch, dtype, None) if dtype else "auto"
    if dtype and not isinstance(number_format, torch.dtype):
        raise SettingsError(f"dtype {dtype!r} is not one of torch's; try bfloat16 or float32")
    placement = {"device_map": "auto"} if device == "auto" else {}
    target = None if device == "auto" else device_named(device)
    try:
        encode = transformers.AutoTokenizer.from_pretrained(tokenizer)
        network = getattr(transformers, kind).from_pretrained(name, dtype=number_format, **placement)
    except ImportError as error:
        raise MissingExtra(f"{name} needs a package that is not installed: {error}") from error
    except (OSError, ValueError, KeyError) as error:
        raise ModelNotFound(f"{name} cannot be loaded: give its folder or hub id ({first_line(error)})") from error
    if target is not None:
        network = network.to(target)
    return network.eval(), encode


@contextmanager
def _torch_seed(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's generators from `rng` within this context, and restore their states afterwards."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), torch.inference_mode():
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        yield
