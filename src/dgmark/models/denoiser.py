"""The interface between the decoding loop and a model: token ids in, logits out.

The loop sees only this. A family's shift, block mask, padding and dtype are handled inside the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.arguments.checks import shown
from dgmark.checkpoint.tokenizer import Tokenizer, without_tokens
from dgmark.errors import ModelFault, SettingsError

# what to do about values that are not logits
ADVICE = "check the weights, and try another dtype: fp16 overflows where bf16 and fp32 do not"


@runtime_checkable
class Denoiser(Protocol):
    """A masked diffusion model.

    A model may also have `traits`, or plain attributes with the names of single traits: see `Traits`.
    """

    @property
    def mask_id(self) -> int:
        """The id that stands for a position not yet committed."""
        ...

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a response."""
        ...

    @property
    def vocab_size(self) -> int:
        """Size of the padded vocabulary: the last axis of the logits."""
        ...

    @property
    def context_length(self) -> int:
        """Largest number of positions in one canvas, prompt and response together."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        ...

    def __call__(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits aligned so that `logits[:, i]` predicts position i."""
        ...


def check_model(model: object) -> None:
    """Refuse the name of a model, and what lacks what a denoiser must have, with a SettingsError."""
    if isinstance(model, str):
        raise SettingsError(f"a model is wanted, not its name: load it first, with load_model({model!r})")
    needed = ("mask_id", "end_ids", "vocab_size", "context_length", "tokenizer")
    missing = [name for name in needed if not hasattr(model, name)]
    if missing or not callable(model):
        lacks = ", ".join(missing) or "__call__"
        raise SettingsError(
            f"a model is wanted, and {shown(model)} has no {lacks}: give what load_model returns, or see Denoiser"
        )


def ids_of_no_text(model: "Denoiser") -> frozenset[int]:
    """The ids that ask a model for tokens or for edits: its mask, and those of LLaDA 2.2. No prompt holds them."""
    return frozenset({model.mask_id, *(traits_of(model).edit_ids or ())})


def text_tokenizer(model: "Denoiser", text: str) -> Tokenizer:
    """The tokenizer for a text that is given to a model: what spells a mask or an edit in it is text."""
    return without_tokens(model.tokenizer, ids_of_no_text(model), text)


def encode_text(model: "Denoiser", text: str) -> list[int]:
    """The ids of a text that is given to a model, see `text_tokenizer`."""
    return text_tokenizer(model, text).encode(text)


# The distribution that rewards are taken from.
ConfidenceSource = Literal["model", "sampling"]
# Where the first block starts.
BlockOrigin = Literal["response", "canvas"]


@dataclass(frozen=True)
class Traits:
    """The facts about a model that decoding, results and checks read.

    Attributes:
        name: the model's name in results.
        device: the device on which the model takes its ids.
        dtype: number format of the weights and the forward; None if the model does not state it.
        defaults: decoding settings for those that the user leaves out, such as `block_length` and `cache`.
        confidence_source: the distribution that rewards are taken from. "model" (LLaDA): softmax of the logits, neither
            tempered nor filtered. "sampling" (Dream, LLaDA2): the distribution that the token is drawn from: logits /
            temperature, top-k and top-p applied, renormalised. At temperature 0 both are the softmax of the logits.
        block_origin: where the first block starts. "response": at the first generated position. "canvas" (LLaDA2):
            at position 0 of the canvas, so that block b is the positions [b * block_length, (b + 1) * block_length) of
            prompt and response together; the first block may begin in the prompt, and the last may be cut short.
        block_multiple: positions in a block of the model's own attention mask (LLaDA2: 32), counted from position 0 of
            the canvas; `block_length` must divide it. None if the model attends to the whole canvas.
        pads: whether the model's sessions take padding: rows with prompts of different lengths in one batch.
        edit_ids: the ids by which the model asks for edits (LLaDA 2.2), which no text holds: the first deletes the
            token in whose place it is proposed, the second inserts a position before it. None if there are none.
    """

    name: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype | str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    confidence_source: ConfidenceSource = "model"
    block_origin: BlockOrigin = "response"
    block_multiple: int | None = None
    pads: bool = False
    edit_ids: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for trait, value, known in (
            ("confidence_source", self.confidence_source, get_args(ConfidenceSource)),
            ("block_origin", self.block_origin, get_args(BlockOrigin)),
        ):
            if value not in known:
                raise SettingsError(f"{self.name} states {trait} {value!r}, which is not one of: {', '.join(known)}")

    @property
    def number_format(self) -> str | None:
        """The dtype as written in results, like "float32" or "q4_k_m"; None if the model does not state it."""
        return None if self.dtype is None else str(self.dtype).removeprefix("torch.")


def traits_of(model: object) -> Traits:
    """The traits of a model: the model itself, its `traits`, or its attributes that have the names of traits.

    A model of your own needs none of these. Its name is then that of its class, its device is the CPU, and it is
    decoded like LLaDA.
    """
    stated = getattr(model, "traits", model)
    if isinstance(stated, Traits):
        return stated
    absent = object()
    attributes = {trait.name: getattr(model, trait.name, absent) for trait in fields(Traits)}
    traits: dict[str, Any] = {name: value for name, value in attributes.items() if value is not absent}
    traits["name"] = str(traits.get("name", type(model).__name__))
    if "device" in traits:
        try:
            traits["device"] = torch.device(traits["device"])
        except (RuntimeError, TypeError) as error:
            device = shown(traits["device"])
            raise SettingsError(f"{traits['name']} states the device {device}, which torch does not know") from error
    return Traits(**traits)


CacheMode = Literal["none", "prefix", "dual"]


@runtime_checkable
class Session(Protocol):
    """The forwards of one decode; a session may keep between them what the cache setting allows.

    Each block has one `begin`, then a `step` for each further forward. All canvases of a decode have one length, and
    the padding columns of each row are fixed when the session is opened. After a block has begun, nothing before it
    changes.
    """

    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of [start, stop), for canvases in which nothing of this block is committed yet."""
        ...

    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Logits of [start, stop), for canvases that differ from those of the last `begin` only in [start, stop).

        Args:
            ids: canvases; several may come from one row (the candidates of a lookahead).
            owner: the row of the last `begin` that each canvas comes from, ascending, on the CPU.
            start: the same as in `begin`.
            stop: the same as in `begin`.
        """
        ...

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows of the last `begin`, on the CPU; the next `begin` has them in this order.

        Until then `step` still counts all rows of the last `begin`. If it is called several times, the last call holds.
        """
        ...


@runtime_checkable
class SessionDenoiser(Protocol):
    """A model that has its own sessions, which may have a cache."""

    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> Session:
        """Open a session with this cache.

        Args:
            cache: what the session keeps between forwards.
            padding: number of padding columns at the left of each row: nothing attends to them, and positions are
                counted from the first column after them. Passed only to a model whose trait `pads` is true. None for
                no padding.

        Raises:
            SettingsError: the model has no such cache.
        """
        ...


def open_session(model: Denoiser, cache: CacheMode = "none", padding: Int[Tensor, " batch"] | None = None) -> Session:
    """Open a session of `model`, with the padding columns at the left of each row, if any; see `SessionDenoiser`.

    A model without its own sessions runs whole forwards. A cache that it lacks, and padding that it cannot ignore, are
    SettingsErrors.
    """
    if padding is not None and not padding.any():
        padding = None
    traits = traits_of(model)
    if padding is not None and not traits.pads:
        raise SettingsError(f"{traits.name} cannot leave padding out: decode prompts of one length together")
    if isinstance(model, SessionDenoiser):
        return model.session(cache) if padding is None else model.session(cache, padding)
    if cache != "none":
        raise SettingsError(f"{traits.name} has no cache {cache!r}: it offers no session; use cache none")
    return _WholeForwards(model)


@dataclass(frozen=True)
class _WholeForwards:
    """The session of a model that has no sessions of its own."""

    model: Denoiser

    def begin(self, ids: Tensor, start: int, stop: int) -> Tensor:
        logits = self.model(ids)
        check_logits(self.model, logits, ids, ids.shape[1])
        return logits[:, start:stop]

    def step(self, ids: Tensor, owner: Tensor, start: int, stop: int) -> Tensor:  # noqa: ARG002
        return self.begin(ids, start, stop)

    def keep(self, rows: Tensor) -> None:
        pass


# numbers of 8 bits and less are stored in torch, and not computed with
_LOGITS_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check_logits(model: Denoiser, logits: object, ids: Int[Tensor, "canvases length"], window: int) -> None:
    """Refuse with a ModelFault what is not a result for these canvases, as far as this shows without reading a value.

    A result has the shape (canvases, window, vocab_size), and floating-point numbers of at least 16 bits on the device
    of the ids.
    """
    declared = (len(ids), window, model.vocab_size)
    if not isinstance(logits, Tensor):
        came = f"a {type(logits).__name__}"
    elif tuple(logits.shape) != declared:
        came = f"logits of shape {tuple(logits.shape)}"
    elif logits.dtype not in _LOGITS_DTYPES:
        came = f"logits of dtype {str(logits.dtype).removeprefix('torch.')}"
        came += ", with which torch does not compute" * logits.is_floating_point()
    elif logits.device != ids.device:
        came = f"logits on {logits.device}"
    else:
        return
    raise ModelFault(
        f"{traits_of(model).name} gave {came}, where floating-point numbers of shape {declared} on {ids.device} were "
        f"expected: {declared[0]} canvases, {window} positions, and the {model.vocab_size} ids that its vocab_size "
        "declares; correct the model",
        range(len(ids)),
    )


def check_values(name: str, logits: Float[Tensor, "... vocab"]) -> None:
    """Refuse with a ModelFault logits that are no distribution: each position needs a finite logit, and no NaN or +inf.

    -inf is allowed, because models rule out ids with it. This waits for the device.
    """
    peaks = logits.amax(-1)
    faulty = peaks[~peaks.isfinite()]
    if len(faulty):
        raise ModelFault(f"{name} gave {value_fault(faulty)} at {len(faulty)} of {peaks.numel()} positions; {ADVICE}")


def value_fault(peaks: Float[Tensor, " faulty"]) -> str:
    """What came, from the largest logits of faulty positions (NaN if there is one)."""
    if peaks.isnan().any():
        return "NaN"
    return "+inf" if (peaks == torch.inf).any() else "-inf for every id that may be written"
