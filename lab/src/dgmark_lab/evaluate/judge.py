"""The judge, an autoregressive model that gives texts a perplexity: the built-in one, a folder, or a hub id.

It is loaded under the rules for every model: safetensors only, strict about tensors, no code from a checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.folder import BUILTIN, Checkpoint, builtin_folder, find_checkpoint, read_object
from dgmark.checkpoint.tokenizer import Tokenizer, read_tokenizer
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.architecture import Architecture, causal_config
from dgmark.models.denoiser import check_values
from dgmark.models.load import device_named, dtype_named
from dgmark.models.weights import load_network

BUILTIN_JUDGE = "builtin"

_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# How far logits may move when a later token changes, as a share of their spread: rounding, nothing else.
_CAUSAL_TOLERANCE = 0.05


@dataclass(frozen=True)
class Judge:
    """A loaded judge.

    Attributes:
        name: the name or path that `load_judge` was called with.
        tokenizer: the judge's own tokenizer; it encodes all texts, whatever tokenizer they were written with.
        network: the transformers model.
        context_length: most tokens that it reads at once.
        opening: ids that its tokenizer puts before every text (a begin token), if any.
        vocab_size: rows of the output matrix.
    """

    name: str
    tokenizer: Tokenizer
    network: PreTrainedModel = field(repr=False)
    context_length: int
    opening: tuple[int, ...]
    vocab_size: int

    @property
    def device(self) -> torch.device:
        """The device that takes the ids."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """Number format of the forward, such as "float32"."""
        return str(self.network.dtype).removeprefix("torch.")

    @torch.inference_mode()
    def logits(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Compute logits; `[:, i]` predicts position i + 1. Later tokens do not affect it: pad at the right.

        Raises:
            ModelFault: the logits are NaN, +inf, or -inf for every id.
        """
        logits: Tensor = self.network(input_ids=ids.to(self.device), use_cache=False, return_dict=True).logits
        check_values(self.name, logits)
        return logits


def load_judge(
    name_or_path: str = BUILTIN_JUDGE,
    *,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    device_map: str | None = None,
    context: int | None = None,
) -> Judge:
    """Load an autoregressive model by the built-in name, from a local folder, or by its hub id.

    Args:
        name_or_path: "builtin"; a folder with config.json, tokenizer.json and safetensors weights; or a hub id such as
            "google/gemma-3-12b-pt".
        device: a torch device; by default the GPU where there is one.
        dtype: see `dgmark.load_model`.
        revision: branch, tag or commit of a hub id.
        device_map: "auto" spreads a model over all devices.
        context: most tokens that it reads at once; by default as many as the model can.

    Raises:
        ModelNotFound: the model does not exist, or has no safetensors weights.
        CheckpointFormat: transformers has no autoregressive class for the model, or the checkpoint is damaged.
        MissingExtra: a required package is not installed.
        SettingsError: the device or dtype is unknown, or the model cannot read that much context.
    """
    target = device_named(device)
    wanted = dtype_named(dtype, target)
    checkpoint, tokenizer = _find(name_or_path, revision)
    network = load_network(
        checkpoint,
        _ARCHITECTURE,
        device=target,
        dtype=wanted,
        device_map=device_map,
    )
    judge = Judge(
        name=name_or_path,
        tokenizer=tokenizer,
        network=network,
        context_length=_context_length(network.config, context, name_or_path),
        opening=_opening(checkpoint, tokenizer),
        vocab_size=network.config.get_text_config().vocab_size,
    )
    _check_causal(judge)
    return judge


def _find(name_or_path: str, revision: str | None) -> tuple[Checkpoint, Tokenizer]:
    """Find a judge's checkpoint and tokenizer; weights of a hub id are fetched only if its config.json loads."""
    if name_or_path == BUILTIN_JUDGE:
        config = read_object(builtin_folder("judge") / "config.json")
        tokenizer = read_tokenizer(find_checkpoint(BUILTIN).folder, BUILTIN)  # shared with the built-in model
        return Checkpoint(BUILTIN_JUDGE, builtin_folder("judge"), config), tokenizer
    _ARCHITECTURE.native_config(find_checkpoint(name_or_path, revision))
    checkpoint = find_checkpoint(name_or_path, revision, weights=True)
    return checkpoint, read_tokenizer(checkpoint.folder, checkpoint.name)


def _context_length(config: PretrainedConfig, context: int | None, name: str) -> int:
    text = config.get_text_config()
    stated = [getattr(text, field, None) for field in _CONTEXT_NAMES]
    most = next((length for length in stated if isinstance(length, int) and length > 1), None)
    if context is None and most is None:
        raise CheckpointFormat(
            f"the configuration of {name} ({config.model_type}) has no context length: give --context"
        )
    if context is not None and (context < 2 or (most is not None and context > most)):
        raise SettingsError(f"context {context} is invalid: {name} reads 2 to {most or 'any number of'} tokens")
    return context or most or 0


def _opening(checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a text, by template or tokenizer_config.json's add_bos_token."""
    plain = tokenizer.encode("a")
    templated: Sequence[int] = tokenizer.backend.encode("a", add_special_tokens=True).ids
    for start in range(1, len(templated) - len(plain) + 1):
        if list(templated[start : start + len(plain)]) == plain:
            return tuple(templated[:start])
    path = checkpoint.folder / "tokenizer_config.json"
    settings = read_object(path) if path.is_file() else {}
    token = settings.get("bos_token")
    content = token.get("content") if isinstance(token, dict) else token
    if settings.get("add_bos_token") is True and isinstance(content, str):
        begin = tokenizer.backend.token_to_id(content)
        return () if begin is None else (begin,)
    return ()


def _check_causal(judge: Judge) -> None:
    """Refuse a model whose logits depend on the token that they predict: its figures would not be perplexities.

    Raises:
        CheckpointFormat: the model attends to later tokens.
    """
    length = min(8, judge.context_length)
    ids = torch.arange(length)[None].repeat(2, 1) % judge.vocab_size
    ids[1, -1] = judge.vocab_size - 1
    first, second = judge.logits(ids)[:, :-1].float()
    if not (first - second).abs().mean() <= _CAUSAL_TOLERANCE * first.std():
        raise CheckpointFormat(f"{judge.name} attends to later tokens: give an autoregressive model as the judge")


# --- the network: any class that transformers knows as AutoModelForCausalLM ---

_FAMILY = Family(
    name="causal-lm", title="Llama, Gemma and others, as judges", model_types=(), architectures=(), mask_tokens=()
)


_ARCHITECTURE = Architecture(_FAMILY, causal_config)
