"""The families of models that dgmark decodes, as data: names, special ids, decoding defaults, chat templates.

What is needed beside to run them (network classes, names of tensors) stands in `models`; this half knows no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dgmark.arguments.checks import shown
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat, SettingsError


@dataclass(frozen=True)
class KnownIds:
    """Special ids of the published checkpoints that have this padded vocabulary."""

    mask_id: int
    end_of_text: int


@dataclass(frozen=True)
class Published:
    """A checkpoint on the hub: its id, its parameters (all experts counted), its licence."""

    hub_id: str
    parameters: float
    licence: str

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights in bf16; keys and values come on top."""
        return self.parameters * 2


_CHATML = "<|im_start|>{role}\n{content}<|im_end|>\n"


# of a message; templates may call them otherwise
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class ChatTemplate:
    """How a chat model reads messages.

    Attributes:
        message: a message, with "{role}" and "{content}" in it; the answer begins with what stands before its content.
        begin: what stands before the messages.
        roles: what it calls the system, the user and the assistant.
        system: the system's message where there is none; None to do without.
        system_end: what follows one that is given.
        answer: what the answer begins with, such as a thought that is left empty.
    """

    message: str
    begin: str = ""
    roles: tuple[str, str, str] = ROLES
    system: str | None = None
    system_end: str = ""
    answer: str = ""

    def text(self, messages: Sequence[tuple[str, str]]) -> str:
        """The text of a conversation up to the beginning of the answer.

        Args:
            messages: role (one of `ROLES`) and content of each, at least one; white space around it is removed.
        """
        named = dict(zip(ROLES, self.roles, strict=True))
        system, rest = self.system, messages
        if messages[0][0] == "system":
            system, rest = messages[0][1].strip() + self.system_end, messages[1:]
        whole = rest if system is None else [("system", system), *rest]
        told = [self._of(named[role]).replace("{content}", content.strip()) for role, content in whole]
        return self.begin + "".join(told) + self._of(named["assistant"]).partition("{content}")[0] + self.answer

    def _of(self, role: str) -> str:
        return self.message.replace("{role}", role)


@dataclass(frozen=True)
class Family:
    """What the checkpoints of one architecture have in common.

    Attributes:
        name: what options and results call it.
        title: what people call it.
        model_types: `model_type` of its config.json.
        architectures: `architectures` of its config.json, which tells apart what shares a model_type.
        marker_field: the field of config.json that only its checkpoints state, above 0, among those of the same
            architecture.
        mask_tokens: names of the mask token, the first one that the tokenizer knows holds.
        known_ids: special ids of the published checkpoints by their padded vocabulary.
        defaults: decoding settings of the paper; see `dgmark.models.denoiser.Traits`.
        confidence_source: see `dgmark.models.denoiser.Traits`.
        network: transformers' model_type of the decoder class that it loads into under the same names ("_moe" is added
            where config.json states experts); None if a module of `dgmark.models.families` says how it loads.
        attention: what a column sees. "bidirectional": all columns. "block-causal": its own and earlier blocks.
            "causal-prefix": finished text is read left to right, and the block that is decoded from both sides.
        shift: 1 if the hidden state at i - 1 predicts position i, else 0. Of a block after a causal prefix, the first
            position is predicted by the state before it in both cases.
        block_multiple: positions of a block of its attention mask; None if the mask has no blocks of its own.
        block_field: the field of config.json that states another `block_multiple` of a checkpoint.
        block_origin: where those blocks are counted from; see `dgmark.models.denoiser.Traits`.
        edit_fields: the fields of config.json that state the ids by which it deletes and inserts tokens, in this order;
            see `dgmark.models.denoiser.Traits`.
        context_length: most positions it was trained on, where config.json states more.
        chat: how it reads messages; None where the family has no one template.
        published: checkpoints on the hub.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    mask_tokens: tuple[str, ...]
    marker_field: str | None = None
    known_ids: Mapping[int, KnownIds] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    confidence_source: Literal["model", "sampling"] = "model"
    network: str | None = None
    attention: Literal["bidirectional", "block-causal", "causal-prefix"] = "bidirectional"
    shift: int = 0
    block_multiple: int | None = None
    block_field: str | None = None
    block_origin: Literal["response", "canvas"] = "response"
    edit_fields: tuple[str, str] | None = None
    context_length: int | None = None
    chat: ChatTemplate | None = None
    published: tuple[Published, ...] = ()

    def defaults_with(self, block: int | None) -> Mapping[str, Any]:
        """Decoding settings, with the block length of a checkpoint that states its own blocks (see `block_of`)."""
        return {**self.defaults, **({} if block == self.block_multiple else {"block_length": block})}

    def block_of(self, checkpoint: Checkpoint) -> int | None:
        """Positions of a block of the checkpoint's attention mask; anything else in config.json is refused."""
        stated = checkpoint.config.get(self.block_field) if self.block_field is not None else None
        if stated is None:
            return self.block_multiple
        if type(stated) is not int or stated < 1:
            path = checkpoint.folder / "config.json"
            raise CheckpointFormat(f"{path}: {self.block_field} is {stated!r}, which is not a number of positions")
        return stated


LLADA = Family(
    name="llada",
    title="LLaDA, LLaDA 1.5, iLLaDA",
    model_types=("llada",),
    architectures=("LLaDAModelLM",),
    mask_tokens=("<|mdm_mask|>",),
    known_ids={126464: KnownIds(mask_id=126336, end_of_text=126081), 155136: KnownIds(mask_id=5, end_of_text=2)},
    defaults={"length": 256, "block_length": 32, "strategy": "confidence"},
    chat=ChatTemplate("<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>", begin="<|startoftext|>"),
    published=(
        Published("GSAI-ML/LLaDA-8B-Instruct", 8.02e9, "MIT"),
        Published("GSAI-ML/LLaDA-8B-Base", 8.02e9, "MIT"),
        Published("GSAI-ML/LLaDA-1.5", 8.02e9, "MIT"),
        # unverified: iLLaDA's count of parameters, and whether its chat template is LLaDA's
        Published("GSAI-ML/iLLaDA-8B-Instruct", 7.62e9, "see its card"),
        Published("GSAI-ML/iLLaDA-8B-Base", 7.62e9, "see its card"),
    ),
)

DREAM = Family(
    name="dream",
    title="Dream, Dream-Coder, DiffuCoder",
    model_types=("Dream", "dream"),
    architectures=("DreamModel",),
    mask_tokens=("<|mask|>",),
    known_ids={152064: KnownIds(mask_id=151666, end_of_text=151643)},
    defaults={"length": 256, "block_length": 8, "strategy": "confidence"},
    confidence_source="sampling",
    network="qwen2",
    shift=1,
    context_length=2048,
    chat=ChatTemplate(_CHATML, system="You are a helpful assistant."),
    published=(
        Published("Dream-org/Dream-v0-Instruct-7B", 7.62e9, "Apache-2.0"),
        Published("Dream-org/Dream-v0-Base-7B", 7.62e9, "Apache-2.0"),
        Published("Dream-org/Dream-Coder-v0-Instruct-7B", 7.62e9, "see its card"),
        Published("apple/DiffuCoder-7B-cpGRPO", 7.62e9, "see its card"),
        Published("apple/DiffuCoder-7B-Instruct", 7.62e9, "see its card"),
        Published("apple/DiffuCoder-7B-Base", 7.62e9, "see its card"),
    ),
)

LLADA2 = Family(
    name="llada2",
    title="LLaDA 2.0, LLaDA 2.1",
    model_types=("llada2_moe",),
    architectures=("LLaDA2MoeModelLM",),
    mask_tokens=("<|mask|>",),
    known_ids={157184: KnownIds(mask_id=156895, end_of_text=156892)},
    defaults={"length": 256, "block_length": 32, "strategy": "confidence", "cache": "prefix"},
    confidence_source="sampling",
    attention="block-causal",
    block_multiple=32,  # of its attention mask in training; config.json does not state it
    block_origin="canvas",
    chat=ChatTemplate(
        "<role>{role}</role>{content}<|role_end|>",
        roles=("SYSTEM", "HUMAN", "ASSISTANT"),
        system="detailed thinking off",
        system_end="\ndetailed thinking off",
    ),
    published=(
        Published("inclusionAI/LLaDA2.0-mini", 16.26e9, "Apache-2.0"),
        Published("inclusionAI/LLaDA2.0-flash", 103e9, "Apache-2.0"),
        Published("inclusionAI/LLaDA2.1-mini", 16.26e9, "see its card"),
    ),
)

LLADA22 = replace(
    LLADA2,
    name="llada2.2",
    title="LLaDA 2.2",
    marker_field="expert_capacity",
    defaults={**LLADA2.defaults, "edits": "levenshtein", "commit": "threshold", "threshold": 0.5},
    confidence_source="model",
    block_field="block_size",
    edit_fields=("delete_token_id", "split_token_id"),
    published=(
        Published("inclusionAI/LLaDA2.2-mini", 16.26e9, "Apache-2.0"),
        Published("inclusionAI/LLaDA2.2-flash", 102.89e9, "Apache-2.0"),
    ),
)

LLADA_MOE = Family(
    name="llada-moe",
    title="LLaDA-MoE",
    model_types=("llada_moe", "lladamoe"),
    architectures=("LLaDAMoEModelLM", "LLaDAMoEModel"),
    mask_tokens=("<|mask|>",),
    known_ids={157184: KnownIds(mask_id=156895, end_of_text=156892)},
    defaults={"length": 256, "block_length": 32, "strategy": "confidence"},
    chat=LLADA2.chat,  # unverified: taken over from LLaDA 2, whose tokenizer it shares
    published=(
        Published("inclusionAI/LLaDA-MoE-7B-A1B-Instruct", 7.36e9, "see its card"),
        Published("inclusionAI/LLaDA-MoE-7B-A1B-Base", 7.36e9, "see its card"),
    ),
)

# Qwen3's, with the mask token that was added
_QWEN3_IDS = {151936: KnownIds(mask_id=151669, end_of_text=151643)}

SDAR = Family(
    name="sdar",
    title="SDAR, TraDo",
    model_types=("sdar", "sdar_moe"),
    architectures=("SDARForCausalLM", "SDARMoeForCausalLM"),
    mask_tokens=("<|MASK|>",),
    known_ids=_QWEN3_IDS,
    defaults={"length": 256, "block_length": 4, "strategy": "confidence", "cache": "prefix"},
    confidence_source="sampling",
    network="qwen3",
    attention="block-causal",
    block_multiple=4,
    block_field="block_size",
    block_origin="canvas",
    chat=ChatTemplate(_CHATML),
    published=(
        Published("JetLM/SDAR-1.7B-Chat", 2.03e9, "Apache-2.0"),
        Published("JetLM/SDAR-4B-Chat", 4.41e9, "see its card"),
        Published("JetLM/SDAR-8B-Chat", 8.19e9, "see its card"),
        Published("JetLM/SDAR-30B-A3B-Chat", 30.53e9, "see its card"),
        Published("Gen-Verse/TraDo-4B-Instruct", 4.41e9, "see its card"),
        Published("Gen-Verse/TraDo-8B-Instruct", 8.19e9, "see its card"),
    ),
)

FAST_DLLM = Family(
    name="fast-dllm-v2",
    title="Fast-dLLM v2",
    model_types=("Fast_dLLM_Qwen",),
    architectures=("Fast_dLLM_QwenForCausalLM",),
    mask_tokens=("|<MASK>|",),
    known_ids={  # of the 1.5B and of the 7B
        size: KnownIds(mask_id=151665, end_of_text=151643) for size in (151936, 152064)
    },
    defaults={"length": 256, "block_length": 8, "strategy": "confidence", "cache": "prefix"},
    confidence_source="sampling",
    network="qwen2",
    attention="block-causal",
    shift=1,
    block_multiple=32,
    block_field="bd_size",
    block_origin="canvas",
    chat=ChatTemplate(_CHATML, system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    published=(
        Published("Efficient-Large-Model/Fast_dLLM_v2_1.5B", 1.54e9, "Apache-2.0"),
        Published("Efficient-Large-Model/Fast_dLLM_v2_7B", 7.62e9, "see its card"),
    ),
)

DIFFCODER = Family(
    name="stable-diffcoder",
    title="Stable-DiffCoder",
    model_types=(),  # it states Llama's
    architectures=("StableDiffcoderForCausalLM",),
    mask_tokens=("<[MASK_TOKEN]>",),
    known_ids={155136: KnownIds(mask_id=5, end_of_text=2)},
    defaults={"length": 256, "block_length": 4, "strategy": "confidence", "cache": "prefix"},
    network="llama",
    attention="block-causal",
    block_multiple=4,
    block_origin="canvas",
    # unverified: that it is Seed-Coder's
    chat=ChatTemplate("<[begin\u2581of\u2581sentence]>{role}\n{content}<[end\u2581of\u2581sentence]>"),
    published=(
        Published("ByteDance-Seed/Stable-DiffCoder-8B-Instruct", 8.25e9, "MIT"),
        Published("ByteDance-Seed/Stable-DiffCoder-8B-Base", 8.25e9, "MIT"),
    ),
)

RND1 = Family(
    name="rnd1",
    title="RND1",
    model_types=("rnd1",),
    architectures=("RND1LM",),
    mask_tokens=("<|mask|>", "<|MASK|>"),
    known_ids=_QWEN3_IDS,
    defaults={"length": 256, "block_length": 32, "strategy": "entropy"},
    confidence_source="sampling",
    network="qwen3",
    shift=1,
    published=(Published("radicalnumerics/RND1-Base-0910", 30.53e9, "see its card"),),
)

# Tiny-A2D: two kinds of training, whose config.json is the same
A2D_MDLM = Family(
    name="a2d-mdlm",
    title="Tiny-A2D (MDLM)",
    model_types=("a2d-qwen3",),
    architectures=("A2DQwen3LMHeadModel",),
    mask_tokens=("<|mask|>", "<|MASK|>"),
    known_ids=_QWEN3_IDS,
    defaults={"length": 256, "block_length": 32, "strategy": "confidence"},
    network="qwen3",
    chat=ChatTemplate(_CHATML, answer="<think>\n\n</think>\n\n"),
    published=(Published("dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1", 0.6e9, "Apache-2.0"),),
)
A2D_BD3LM = replace(
    A2D_MDLM,
    name="a2d-bd3lm",
    title="Tiny-A2D (BD3LM)",
    defaults={**A2D_MDLM.defaults, "cache": "prefix"},
    attention="block-causal",
    block_multiple=32,
    published=(Published("dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1", 0.6e9, "Apache-2.0"),),
)

NEMOTRON = Family(
    name="nemotron",
    title="Nemotron-Labs-Diffusion",
    model_types=("nemotron_labs_diffusion",),
    architectures=("NemotronLabsDiffusionModel",),
    mask_tokens=("<SPECIAL_100>",),
    known_ids={131072: KnownIds(mask_id=100, end_of_text=2)},
    defaults={"length": 256, "block_length": 32, "strategy": "confidence", "cache": "prefix"},
    confidence_source="sampling",
    network="ministral3",
    attention="causal-prefix",
    chat=ChatTemplate(_CHATML, answer="<think></think>"),
    published=(
        # unverified: the parameters of the 14B
        Published("nvidia/Nemotron-Labs-Diffusion-3B", 3.83e9, "see its card"),
        Published("nvidia/Nemotron-Labs-Diffusion-8B", 8.49e9, "see its card"),
        Published("nvidia/Nemotron-Labs-Diffusion-14B", 13.5e9, "see its card"),
    ),
)

BLOCK_LLAMA = Family(
    name="block-llama",
    title="Llama, adapted to block diffusion (the built-in narrator)",
    model_types=("block_llama",),
    architectures=("BlockLlamaModelLM",),
    mask_tokens=("<|mask|>",),
    defaults={"length": 256, "block_length": 8, "strategy": "confidence", "cache": "prefix"},
    network="llama",
    attention="causal-prefix",
    shift=1,
    chat=ChatTemplate(_CHATML),
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *(LLADA, DREAM, LLADA2, LLADA22, LLADA_MOE, SDAR, FAST_DLLM, DIFFCODER, NEMOTRON, A2D_MDLM, A2D_BD3LM, RND1),
        BLOCK_LLAMA,
    )
}

# What people try and dgmark does not decode, by model_type or architecture: the reason.
REFUSED = {
    "diffusion_gemma": "the sampler of DiffusionGemma's card outputs the most likely token of every position under the "
    "last forward, so the choice of positions decides no token of the text, and leaves no mark there; write with "
    "diffusers' DiffusionGemmaPipeline and dgmark's MarkingBlockRefinementScheduler, which commits tokens "
    "(docs/models.md)"
}


def family_of(checkpoint: Checkpoint, name: str | None = None) -> Family:
    """The family of a checkpoint, by its config.json or, where that does not tell, by the family's name."""
    if name is not None:
        if not isinstance(name, str) or name not in FAMILIES:
            raise SettingsError(f"family {shown(name)} is not one of: {', '.join(FAMILIES)}")
        return FAMILIES[name]
    path = checkpoint.folder / "config.json"
    model_type, architectures = checkpoint.config.get("model_type"), checkpoint.config.get("architectures") or []
    for key, value in (("model_type", model_type), ("architectures", architectures)):
        names = value if key == "architectures" else [value or ""]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise CheckpointFormat(f"{path}: {key} is {value!r}, which is not a name; fetch the checkpoint again")
    for known in (model_type, *architectures):
        if known in REFUSED:
            raise CheckpointFormat(f"{checkpoint.folder} cannot be decoded: {REFUSED[known]}")
    by_architecture = [family for family in FAMILIES.values() if set(architectures) & set(family.architectures)]
    by_model_type = [family for family in FAMILIES.values() if model_type in family.model_types]
    found = by_architecture or by_model_type  # LLaDA-MoE bears LLaDA's model_type
    marked = [family for family in found if family.marker_field and checkpoint.config.get(family.marker_field)]
    found = marked or [family for family in found if family.marker_field is None]
    if len(found) > 1:
        place = f"{checkpoint.name} {checkpoint.folder}"
        named = [family for family in found if any(each.hub_id.split("/")[1] in place for each in family.published)]
        found = named or found
    if len(found) > 1:
        names = " or ".join(family.name for family in found)
        raise CheckpointFormat(
            f"{checkpoint.folder} may be of the family {names}: config.json is the same, so name the family (--family)"
        )
    if found:
        return found[0]
    code = "; its auto_map names Python files, and dgmark runs no code of a checkpoint"
    raise CheckpointFormat(
        f"{checkpoint.folder} is of model_type {model_type!r}; families that can be loaded: {', '.join(FAMILIES)}"
        f"{code if 'auto_map' in checkpoint.config else ''}"
    )
