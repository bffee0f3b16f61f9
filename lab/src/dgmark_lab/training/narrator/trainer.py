"""Training of the narrator: adapters and a mask embedding, on a frozen base."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from transformers import LlamaForCausalLM

from dgmark.checkpoint.tokenizer import read_tokenizer
from dgmark.errors import CheckpointFormat
from dgmark.models.assembly import write_base
from dgmark_lab.toml_files import read_toml
from dgmark_lab.training.config import BlockMasking, NarratorConfig
from dgmark_lab.training.corpus import file_hash
from dgmark_lab.training.narrator.adapter import AdaptedLlama, Layout
from dgmark_lab.training.narrator.folders import BASE, END
from dgmark_lab.training.narrator.own_texts import odds, write_own_texts
from dgmark_lab.training.narrator.rows import COPIES, BlockBatch, Passage, PassageRows, passages, read_own_texts
from dgmark_lab.training.run import STATE, Run, load_state

OWN = "own.jsonl"
_HELD_OUT_EVERY = 20  # of the base's own texts
_HELD_OUT_BATCH = 8
_BOUND = BlockMasking(ordered_share=0.0, spreads=(1.0,), largest_weight=1e9)  # masks of the bound
STAGES = tuple(Path(__file__).with_name(name) for name in ("narrator.toml", "continued.toml"))


class NarratorTrainer(Run[NarratorConfig, BlockBatch]):
    """A run of one stage, which puts adapters into the autoregressive model of the folder `base`.

    Some of the texts that the base wrote are held out. The adapters start as those of the state file `init` of another
    run, unless this run resumes.

    Raises:
        ResumeMismatch: the folder holds a run with other settings, data or base.
        CheckpointFormat: `init`, or the folder's state, holds other adapters.
        DgmarkError: a file is unusable.
    """

    def __init__(
        self,
        config: NarratorConfig,
        base: Path,
        own: Path,
        documents: Path,
        heldout: Path,
        out: Path,
        *,
        init: Path | None = None,
    ) -> None:
        sources = {"own": own, "documents": documents, "base": base / "model.safetensors"}
        made_from = {name: file_hash(path) for name, path in sources.items()}
        super().__init__(config, made_from, out, torch.device("cpu"))
        tokenizer = read_tokenizer(base, base.name)
        end_id = tokenizer.backend.token_to_id(END)
        if end_id is None:
            raise CheckpointFormat(f"{base}: the tokenizer has no {END}")
        texts = read_own_texts(own, tokenizer.end_ids)
        people, unseen = (passages(path, tokenizer, config.rows.mixture) for path in (documents, heldout))
        trained_on = [text for number, text in enumerate(texts) if number % _HELD_OUT_EVERY]
        self.rows = PassageRows(trained_on, people, config.rows, end_id, config.seed)
        self.held_out = held_out_batches(texts[::_HELD_OUT_EVERY], unseen, config, end_id)
        network = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
        torch.manual_seed(config.seed)
        self.model = AdaptedLlama(network, config.rank)
        params = self.model.trainable_parameters()
        self.params = list(params.values())
        mask = params.pop("mask_vector")
        optimizer = torch.optim.AdamW(
            [
                {"params": list(params.values()), "peak": config.optimizer.lr},
                {"params": [mask], "peak": config.optimizer.mask_lr},
            ],
            betas=(0.9, 0.98),
            weight_decay=0.0,
        )
        self.optimizers = [optimizer]
        self.parts = {"trained": self.model, "optimizer": optimizer}
        self.layout = Layout(config.rows.context, config.rows.response, COPIES)
        if self.state is None and init is not None:
            self.model.load_state_dict(load_state(init)["tensors"]["trained"])
        self.resume()

    def batch(self, step: int) -> BlockBatch:
        """Return the batch of a step (from 0)."""
        return self.rows.step(step, self.config.masking)

    def update(self, batch: BlockBatch) -> Tensor:
        """Make one step, and return (loss, plain cross entropy)."""
        entropy, weights = self._cross_entropy(batch, soft=self.config.soft_targets)
        loss = (entropy * weights).sum() / max(int((batch.weights > 0).sum()), 1)
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.params, self.config.optimizer.clip_norm)
        self.take_step()
        self.tokens += len(entropy)
        return torch.stack([loss.detach(), entropy.detach().mean()])

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure the bound on held-out rows, with the same masks every time."""
        values: dict[str, float] = {}
        for name, batches in self.held_out.items():
            nats, count = 0.0, 0
            for batch in batches:
                entropy, weights = self._cross_entropy(batch)
                nats += float((entropy * weights).sum())
                count += int(batch.targets.sum())
            values[name] = nats / count
        return values

    def _log_odds(
        self, batch: BlockBatch, wanted: Bool[Tensor, "rows copies response"]
    ) -> Float[Tensor, "targets vocab"]:
        """Return the log odds of each token at the wanted positions of the copies."""
        layout, clean = self.layout, batch.ids
        ids = torch.cat([clean, clean[:, layout.context :].repeat(1, layout.copies)], 1)
        masked = torch.cat([torch.zeros_like(clean, dtype=torch.bool), batch.masked.flatten(1)], 1)
        seen = layout.visible(batch.absent, batch.block)
        hidden = self.model.hidden(ids, masked, layout.positions(), seen)
        rows = torch.arange(len(ids))[:, None, None].expand_as(wanted)[wanted]
        states = hidden[rows, layout.predictors(batch.block)[wanted]]
        return functional.linear(states, self.model.embedding).log_softmax(-1)

    def _cross_entropy(self, batch: BlockBatch, *, soft: bool = False) -> tuple[Tensor, Tensor]:
        """Return (cross entropy of each target, its weight); with `soft`, against the base's odds at the front."""
        wanted = batch.weights > 0
        log_odds = self._log_odds(batch, wanted)
        targets = batch.ids[:, None, self.layout.context :].expand_as(wanted)[wanted]
        entropy = -log_odds.gather(1, targets[:, None])[:, 0]
        if soft and batch.front.any():
            front = batch.front & wanted
            likely, chances = self._base_odds(batch, front)
            soft_entropy = -(log_odds[front[wanted]].gather(1, likely) * chances).sum(-1)
            entropy = entropy.masked_scatter(front[wanted], soft_entropy)
        return entropy, batch.weights[wanted]

    def _base_odds(
        self, batch: BlockBatch, front: Bool[Tensor, "rows copies response"]
    ) -> tuple[Int[Tensor, "targets k"], Float[Tensor, "targets k"]]:
        """Return (tokens, their odds) from which the base draws each target's token, given the row's text before it."""
        needed = functional.pad(front.any(1), (self.layout.context, 0))
        some, clean = needed.any(1), batch.ids
        logits = self.model.base_logits(clean[some], batch.absent[some], needed[some])
        row, place = needed.nonzero(as_tuple=True)
        index = torch.arange(clean.shape[1])
        before = (index >= batch.unwritten[row, None]) & (index < place[:, None])
        counts = torch.zeros(logits.shape, dtype=torch.int16).scatter_add_(1, clean[row], before.short())
        likely, chances = odds(logits, counts > 0, self.config.own_texts.sampling)
        number = torch.zeros(needed.shape, dtype=torch.long).masked_scatter(needed, torch.arange(len(row)))
        chosen = number[:, None, self.layout.context :].expand_as(front)[front]
        return likely[chosen], (chances / chances.sum(-1, keepdim=True))[chosen]


def held_out_batches(
    own: Sequence[Passage], documents: Sequence[Passage], config: NarratorConfig, end_id: int
) -> dict[str, list[BlockBatch]]:
    """Return rows of held-out text in the widest blocks, masked for the bound, by name of the figure in the log."""
    rows = {"batch": _HELD_OUT_BATCH, "block_lengths": (max(config.rows.block_lengths),), "late_block_lengths": ()}
    held_out = {}
    for name, share in (("heldout", 0.0), ("heldout_own", 1.0)):
        settings = config.rows.model_copy(update={**rows, "own_share": share})
        source = PassageRows(own, documents, settings, end_id, config.seed + 1)
        steps = range(config.record.evaluate_rows // _HELD_OUT_BATCH)
        held_out[name] = [source.step(step, _BOUND).first_copy() for step in steps]
    return held_out


def train_narrator(
    data: Path,
    heldout: Path,
    out: Path,
    *,
    stages: Sequence[Path] = STAGES,
    max_seconds: float | None = None,
) -> Run[Any, Any]:
    """Fetch the base, let it write texts, and train adapters on them, stage by stage; return the last run.

    Args:
        data: training documents.
        heldout: documents for regular evaluation.
        out: the folder of the base and of the first stage; the others have folders of their names in it.
        stages: settings files; each stage starts from the adapters of the one before.
        max_seconds: stop after this time, but not before the base has written its texts.

    Raises:
        DgmarkError: settings, data or folders are unusable; the message says what to do.
    """
    settings = [read_toml(path, NarratorConfig) for path in stages]
    base = out / BASE
    if not base.is_dir():
        write_base(base)
    folders = [out, *(out / path.stem for path in stages[1:])]
    start, init = time.monotonic(), None
    for config, folder in zip(settings, folders, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        write_own_texts(base, folder / OWN, config.own_texts)
        run = NarratorTrainer(config, base, folder / OWN, data, heldout, folder, init=init)
        run.train(None if max_seconds is None else max(0.0, max_seconds - (time.monotonic() - start)))
        if run.interrupted or not run.done:
            break
        init = folder / STATE
    return run
