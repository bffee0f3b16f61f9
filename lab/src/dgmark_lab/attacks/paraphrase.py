"""Paraphrase by instruction: a language model is asked, in the paper's words, to rewrite the text.

Paper appendix, "Llama Paraphrase Attack": Llama 3 8B Instruct, temperature 0.2, at most 256 tokens.
"""

from dataclasses import dataclass

import numpy as np

from dgmark.errors import InputError, SettingsError
from dgmark_lab.attacks.rewriting import load_rewriter, temperature_settings, torch_seed
from dgmark_lab.endpoint import Endpoint, NoUsableAnswer, ask, connect

PROMPT = (
    "As an expert copy-editor, please rewrite the following text in your own voice while ensuring that the final "
    "output contains the same information as the original text and has roughly the same length. Please paraphrase all "
    "sentences and do not omit any crucial details. Additionally, please take care to provide any relevant information "
    "about public figures, organizations, or other entities mentioned in the text to avoid any potential "
    "misunderstandings or biases. Respond only with the paraphrased text."
)
MODEL = "meta-llama/Meta-Llama-3-8B-Instruct"


@dataclass(frozen=True)
class Paraphrase:
    """Paraphrase with an instruction-tuned language model, run locally or behind an OpenAI-compatible endpoint.

    Attributes:
        model: folder or hub id of a causal language model of transformers; with an endpoint, the model's name there.
        endpoint: base URL of an OpenAI-compatible server, like http://localhost:8000/v1; None runs the model locally.
            Its API key is read from OPENAI_API_KEY only.
        temperature: sampling temperature; 0 is greedy.
        max_tokens: most tokens of the answer.
        prompt: the instruction; the text follows after an empty line.
        retries: how often a failed request to an endpoint is repeated (with growing pauses).
        timeout: how many seconds an endpoint may take for one answer.
        device: a torch device, or "auto" for all available ones.
        dtype: name of a torch dtype; None for the checkpoint's.
    """

    model: str = MODEL
    endpoint: str | None = None
    temperature: float = 0.2
    max_tokens: int = 256
    prompt: str = PROMPT
    retries: int = 5
    timeout: float = 120.0
    device: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.max_tokens < 1 or self.retries < 0 or self.timeout <= 0:
            raise SettingsError("temperature and retries must be at least 0, max tokens at least 1, timeout above 0")
        self._service()  # refuses an invalid URL now

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the paraphrase."""
        if not text.strip():
            return text
        content = f"{self.prompt}\n\n{text}"
        answer = self._generate(content, rng) if self.endpoint is None else self._ask(content, rng)
        if not answer.strip():
            raise InputError(f"{self.model} answered with an empty text")
        return answer.strip()

    def _generate(self, content: str, rng: np.random.Generator) -> str:
        network, tokenizer = load_rewriter("causal", self.model, self.model, self.device, self.dtype)
        if tokenizer.chat_template:
            turn = [{"role": "user", "content": content}]
            inputs = tokenizer.apply_chat_template(
                turn, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
        else:
            inputs = tokenizer(content + "\n\n", return_tensors="pt")
        inputs = inputs.to(network.device)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        with torch_seed(rng):
            made = network.generate(
                **inputs, max_new_tokens=self.max_tokens, pad_token_id=pad, **temperature_settings(self.temperature)
            )
        return str(tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))

    def _ask(self, content: str, rng: np.random.Generator) -> str:
        endpoint = self._service()
        with connect(endpoint) as client:
            try:
                question = [{"role": "user", "content": content}]
                return ask(client, endpoint, question, str, seed=int(rng.integers(2**31)))[0]
            except NoUsableAnswer as error:
                raise InputError(f"{self.endpoint} gives no paraphrase of this text: {error}") from error

    def _service(self) -> Endpoint:
        return Endpoint(
            model=self.model,
            base_url=self.endpoint,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            json_mode=False,
            attempts=self.retries + 1,
            timeout=self.timeout,
        )
