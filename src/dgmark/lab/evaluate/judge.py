"""The autoregressive model under which texts get a perplexity: the built-in one, a folder, or a hub id.

Loaded under the rules of every model: safetensors only, strict about tensors, and no code of a checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from dgmark.checkpoint.folder import BUILTIN, Checkpoint, builtin_folder, find_checkpoint, read_object
from dgmark.checkpoint.tokenizer import Tokenizer, read_tokenizer
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.lab.evaluate.causal_lm import ARCHITECTURE
from dgmark.models.architecture import quantization_of
from dgmark.models.load import device_named, dtype_named
from dgmark.models.traits import number_format
from dgmark.models.weights import load_network

BUILTIN_JUDGE = "builtin"

_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# Share of the spread of the logits that they may move when a later token changes: number formats, nothing else.
_CAUSAL_TOLERANCE = 0.05


@dataclass(frozen=True)
class Judge:
    """A loaded judge.

    Attributes:
        name: as given to `load_judge`.
        tokenizer: its own; texts are read with it, whatever they were written with.
        network: transformers' class.
        context_length: most tokens that it reads at once.
        opening: ids that its tokenizer puts before every text (a token for the beginning), or none.
        vocab_size: rows of the output matrix.
        quantization: "int8", "int4", or how it was published; None for none.
    """

    name: str
    tokenizer: Tokenizer
    network: PreTrainedModel = field(repr=False)
    context_length: int
    opening: tuple[int, ...]
    vocab_size: int
    quantization: str | None = None

    @property
    def device(self) -> torch.device:
        """Where it takes its ids."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """Number format of the forward, like "float32" or "bfloat16+int4"."""
        return number_format(self.network.dtype, self.quantization)

    @torch.inference_mode()
    def logits(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits: `[:, i]` predicts position i + 1. What stands behind a token does not touch it: pad at the right."""
        logits: Tensor = self.network(input_ids=ids.to(self.device), use_cache=False, return_dict=True).logits
        return logits


def load_judge(
    name_or_path: str = BUILTIN_JUDGE,
    *,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    quantization: str | None = None,
    device_map: str | None = None,
    context: int | None = None,
) -> Judge:
    """Load an autoregressive model by the built-in name, from a local folder, or by its hub id.

    Args:
        name_or_path: "builtin"; a folder with config.json, tokenizer.json and safetensors weights; or a hub id such as
            "google/gemma-3-12b-pt".
        device: a torch device; by default the GPU where there is one.
        dtype: as of `dgmark.load_model`.
        revision: branch, tag or commit of a hub id.
        quantization: "int8" or "int4" quantizes while loading; a checkpoint that was published quantized (bitsandbytes,
            AWQ) needs none.
        device_map: "auto" spreads a model over all devices.
        context: tokens it reads at once; by default all that it can.

    Raises:
        ModelNotFound: no such model, or no safetensors weights.
        CheckpointFormat: no autoregressive model that transformers has a class for, or damaged.
        MissingExtra: a package is wanted that is not installed.
        SettingsError: unknown device, dtype or quantization, or a context that the model does not have.
    """
    target = device_named(device)
    wanted = dtype_named(dtype, target)
    checkpoint, tokenizer = _find(name_or_path, revision)
    network = load_network(
        checkpoint,
        ARCHITECTURE,
        device=target,
        dtype=wanted,
        quantization=quantization,
        device_map=device_map,
    )
    judge = Judge(
        name=name_or_path,
        tokenizer=tokenizer,
        network=network,
        context_length=_context_length(network.config, context, name_or_path),
        opening=_opening(checkpoint, tokenizer),
        vocab_size=network.config.get_text_config().vocab_size,
        quantization=quantization or quantization_of(checkpoint),
    )
    _check_causal(judge)
    return judge


def _find(name_or_path: str, revision: str | None) -> tuple[Checkpoint, Tokenizer]:
    """A judge's checkpoint and tokenizer; of a hub id weights are fetched once its config.json is known to load."""
    if name_or_path == BUILTIN_JUDGE:
        config = read_object(builtin_folder("judge") / "config.json")
        tokenizer = read_tokenizer(find_checkpoint(BUILTIN).folder, BUILTIN)  # which they share
        return Checkpoint(BUILTIN_JUDGE, builtin_folder("judge"), config), tokenizer
    ARCHITECTURE.native_config(find_checkpoint(name_or_path, revision))
    checkpoint = find_checkpoint(name_or_path, revision, weights=True)
    return checkpoint, read_tokenizer(checkpoint.folder, checkpoint.name)


def _context_length(config: PretrainedConfig, wanted: int | None, name: str) -> int:
    text = config.get_text_config()
    stated = [getattr(text, field, None) for field in _CONTEXT_NAMES]
    most = next((length for length in stated if isinstance(length, int) and length > 1), None)
    if wanted is None and most is None:
        raise CheckpointFormat(f"a {config.model_type} states no length of context: give --context for {name}")
    if wanted is not None and (wanted < 2 or (most is not None and wanted > most)):
        raise SettingsError(f"a context of {wanted} tokens: {name} reads 2 to {most or 'any number of'} tokens")
    return wanted or most or 0


def _opening(checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """What the tokenizer puts before a text, by its own template or by tokenizer_config.json's add_bos_token."""
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
    """Refuse a model whose logits see the token that they predict: of such a model nothing is a perplexity.

    Raises:
        CheckpointFormat: it does.
    """
    length = min(8, judge.context_length)
    ids = torch.arange(length)[None].repeat(2, 1) % judge.vocab_size
    ids[1, -1] = judge.vocab_size - 1
    first, second = judge.logits(ids)[:, :-1].float()
    if not (first - second).abs().mean() <= _CAUSAL_TOLERANCE * first.std():
        raise CheckpointFormat(f"{judge.name} attends to later tokens: it is no autoregressive model, and no judge")
