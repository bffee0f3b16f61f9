"""Measure decoding on a GPU at the size people run: a network of LLaDA-8B's shape with random weights.

One table: milliseconds a step of each batch and mode for each kind of keys, eagerly and compiled, the most important
first. `--small` takes a tiny network, on any device. What no time is left for is named and left out, and so is what
fails, such as for lack of memory. The results are written row by row.
"""

import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from dgmark.checkpoint.families import FAMILIES
from dgmark.decode import Canvas, DecodeConfig, decode_steps, side_of_rows
from dgmark.models.compiled import compile_network
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import SECRET_BYTES, WatermarkKey
from dgmark_lab.training.corpus import write_json
from shared import arguments, bench_key, print_header, print_row, seconds_of

Row = dict[str, Any]
# whose keys the rows of a batch have: the first is what the others are compared with
KINDS = ("none", "one", "256", "each")
CACHES: dict[str, Row] = {cache: {"cache": cache} for cache in ("none", "prefix", "dual")}
# Fast-dLLM's parallel decoding, whose threshold commits several tokens a step of weights that are never confident; and
# the position rule's lookahead
PARALLEL: dict[str, Row] = {
    "threshold": {"commit": "threshold", "threshold": 1e-4, "cache": "dual"},
    "lookahead 3": {"lookahead": 3},
}
PADDING = 116  # rows of LLaDA's logits without a token
COLUMNS = (
    "batch", "mode", "keys", "runtime", "ms a step", "tokens a second", "of unmarked", "the mark's share", "forward ms",
    "peak GB", "waits a step",
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The shape of a network, and how much is measured.

    Attributes:
        seconds: what a mode takes at most, eagerly and compiled, by guess for an H100.
    """

    layers: int
    width: int
    inner: int
    heads: int
    vocabulary: int
    batches: tuple[int, ...]
    prompt: int
    length: int
    block: int
    steps: int
    rounds: int
    seconds: dict[str, float]


# batch 8 first, of which the goal speaks
LLADA = Size(*(32, 4096, 12_288, 32, 126_464, (8, 1, 32), 64, 256, 32, 8, 3), seconds={"eager": 30, "compiled": 150})
SMALL = Size(*(1, 16, 32, 2, 400, (2, 1), 4, 16, 8, 3, 1), seconds={"eager": 0, "compiled": 0})


class Mode(NamedTuple):
    """What takes turns with each kind of keys."""

    runtime: str
    batch: int
    name: str
    settings: Row

    def __str__(self) -> str:
        return f"{self.runtime}, batch {self.batch}, {self.name}"


def modes(size: Size) -> list[Mode]:
    """What is measured, the most important first."""
    found = [Mode("eager", batch, *one) for batch in size.batches for one in CACHES.items()]
    found += [Mode("eager", size.batches[0], *one) for one in PARALLEL.items()]
    return found + [Mode("compiled", batch, *one) for batch in size.batches for one in reversed(CACHES.items())]


def main() -> None:
    """Measure each mode, and print its rows of the table."""
    parser = arguments()
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=480, help="what would end later is left out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny network, on any device")
    args = parser.parse_args()
    size, device = SMALL if args.small else LLADA, torch.device(args.device)
    begin, results, bench = time.monotonic(), machine(device), Bench(size, device)
    print_header(COLUMNS)
    for mode in modes(size):
        if time.monotonic() - begin + size.seconds[mode.runtime] > args.seconds:
            results["left out"].append(str(mode))
        else:
            measure(mode, bench.measured(mode), results, args.out)
    write_json(args.out, results)
    print(f"\nleft out: {'; '.join(results['left out']) or 'nothing'}\nwritten: {args.out}")


def measure(mode: Mode, rows: Iterator[Row], results: Row, out: Path) -> None:
    """Print and write rows as they come; those before a failure stay, and it is named."""
    try:
        for row in rows:
            print_row(list(row.values()))
            results["rows"].append(row)
            write_json(out, results)
    except Exception as error:  # one failure leaves the other modes
        results["failed"][str(mode)] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        print(f"\n{mode} failed: {results['failed'][str(mode)]}\n")


def machine(device: torch.device) -> Row:
    """What the figures depend on, and room for them."""
    on_gpu = device.type == "cuda" and torch.cuda.is_available()
    name = torch.cuda.get_device_name(device) if on_gpu else platform.processor() or device.type
    facts = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda}
    return {**facts, "rows": [], "failed": {}, "left out": []}


class Bench:
    """The network of a shape with random weights on a device, and what is measured with it."""

    def __init__(self, size: Size, device: torch.device) -> None:
        self.size, self.device = size, device
        self.model = random_network(size, device)
        self.synchronize = torch.get_device_module(device).synchronize  # waits for the device
        # the fingerprint of a large vocabulary takes a second
        self._keys = cache(lambda kind, batch: keys_of(kind, batch, self.model))

    @cached_property
    def compiled(self) -> bool:
        """Compile the network, which it then stays; false if it cannot be compiled."""
        return compile_network(self.model.network, "eager" if self.size is SMALL else "inductor")

    def measured(self, mode: Mode) -> Iterator[Row]:
        """A row for each kind of keys, whose runs take turns; none where the network cannot be compiled."""
        if mode.runtime == "compiled" and not self.compiled:
            return
        kinds = ("none", "position") if "lookahead" in mode.settings else KINDS
        # the first run of each, which is not timed, counts waits and memory
        first = {kind: self._run(kind, mode, watched=True) for kind in kinds}
        taken: dict[str, list[Row]] = {kind: [] for kind in kinds}
        forwards = []
        for _ in range(self.size.rounds):
            for kind in kinds:
                taken[kind].append(self._run(kind, mode))
            forwards.append(self._forward_seconds(mode))
        plain = median(run["ms"] for run in taken[kinds[0]])
        for kind, runs in taken.items():
            step = median(run["ms"] for run in runs)
            speed, forward = median(run["tokens a second"] for run in runs), 1e3 * median(forwards)
            figures = (round(step, 3), round(speed, 1), round(step / plain, 4), round(1 - plain / step, 4))
            watched = (round(forward, 3), round(first[kind]["peak"] / 1e9, 2), first[kind]["waits"])
            values = (mode.batch, mode.name, kind, mode.runtime, *figures, *watched)
            yield dict(zip(COLUMNS, values, strict=True))

    def _run(self, kind: str, mode: Mode, *, watched: bool = False) -> Row:
        """Decode some steps of a batch; if it is watched, waits and memory are counted, which takes time."""
        size = self.size
        config = DecodeConfig(length=size.length, block_length=size.block, round_trip_check=False, **mode.settings)
        side = side_of_rows(self._keys(kind, mode.batch), self.device)
        peak(self.device, reset=True)
        iterator = decode_steps(self.model, self._canvas(mode.batch), config, side, list(range(mode.batch)))
        next(iterator)  # the first step begins the block
        self.synchronize()
        begin, tokens, count = time.perf_counter(), 0, 0
        with warnings_of_waits(self.device if watched else None) as given:
            for commits in iterator:
                tokens, count = tokens + len(commits.row), count + 1
                if count == size.steps:
                    break
        self.synchronize()
        seconds = time.perf_counter() - begin
        return {
            "ms": 1e3 * seconds / count,
            "tokens a second": tokens / seconds,
            "peak": peak(self.device),
            "waits": sum("synchronizing CUDA operation" in str(one.message) for one in given) / count,
        }

    def _canvas(self, batch: int) -> Canvas:
        size, dice = self.size, torch.Generator().manual_seed(1)
        prompts = torch.randint(2, size.vocabulary - PADDING, (batch, size.prompt), generator=dice)
        return Canvas.after(prompts, size.length, self.model.mask_id).to(self.device)

    def _forward_seconds(self, mode: Mode) -> float:
        """The seconds of one forward of a session in the first block, alone."""
        session, canvas = self.model.session(mode.settings.get("cache", "none")), self._canvas(mode.batch)
        owner, stop = torch.arange(mode.batch), canvas.start + self.size.block

        def step() -> None:
            session.step(canvas.ids, owner, canvas.start, stop)
            self.synchronize()

        session.begin(canvas.ids, canvas.start, stop)
        step()
        return seconds_of(step)


def random_network(size: Size, device: torch.device) -> NetworkDenoiser:
    """A network of this shape with random weights, made on the device, and a tokenizer of as many words."""
    config = LlamaConfig(
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        vocab_size=size.vocabulary,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    config.is_causal = False
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    with device:
        network = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    network.train(False)
    toy = ToyDenoiser(words=size.vocabulary - PADDING - 2, padding=PADDING)
    return NetworkDenoiser(
        name="random",
        tokenizer=toy.tokenizer,
        mask_id=toy.mask_id,
        end_ids=(),  # no row ends early, so that all do the same work
        vocab_size=size.vocabulary,
        context_length=4096,
        family=FAMILIES["llada"],
        defaults=FAMILIES["llada"].defaults,
        dtype=dtype,
        device=network.device,
        pads=True,
        network=network,
    )


def keys_of(kind: str, batch: int, model: NetworkDenoiser) -> list[WatermarkKey | None]:
    """The keys of a batch: none, one, sub-keys of one, one of its own for each row, or one of rule position."""
    if kind == "none":
        return [None] * batch
    if kind == "256":
        key = bench_key("bigram", model, 256)
        return [key.subkey(37 * row % 256) for row in range(batch)]
    key = bench_key("position" if kind == "position" else "bigram", model)
    if kind == "each":
        return [replace(key, secret=bytes([row]) * SECRET_BYTES) for row in range(batch)]
    return [key] * batch


def peak(device: torch.device, *, reset: bool = False) -> int:
    """The largest memory that tensors had on the device since it was reset, in bytes; 0 where nobody counts."""
    if device.type != "cuda":
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


@contextmanager
def warnings_of_waits(device: torch.device | None) -> Iterator[list[warnings.WarningMessage]]:
    """The warnings inside the block, one for each wait of the host in CUDA's debug mode; none without a CUDA device."""
    if device is None or device.type != "cuda":
        yield []
        return
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield given
        finally:
            torch.cuda.set_sync_debug_mode("default")


if __name__ == "__main__":
    main()
