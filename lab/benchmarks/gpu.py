"""Measure decoding on a GPU at the size people run: a network of LLaDA-8B's shape with random weights.

Runs on any device; `--small` takes a tiny network, which is what the tests run. Parts come in order of importance.
Those for which no time or memory is left are named and left out, and none is cut. A part that fails is reported, and
the others run. The results are written row by row.
"""

import hashlib
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from dgmark import Detector
from dgmark.checkpoint.families import FAMILIES
from dgmark.decode import Canvas, DecodeConfig, KeyStore, decode, decode_steps, side_of_rows
from dgmark.engines import Block, mark, propose_block, uniform_draws
from dgmark.models.compiled import compile_network
from dgmark.models.denoiser import CacheMode
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import SECRET_BYTES, WatermarkKey
from shared import arguments, print_header, print_row

Row = dict[str, Any]
# whose keys the rows of a batch have: the first is what the others are compared with
KINDS = ("none", "one", "256", "each")
CACHES: tuple[CacheMode, ...] = ("none", "prefix", "dual")
PADDING = 116  # rows of LLaDA's logits without a token
REPEATS = 9  # of a single step, whose time is the median


@dataclass(frozen=True)
class Size:
    """The shape of a network, and how much is measured.

    Attributes:
        seconds: what a part of a kind takes at most, by guess for an H100: a part that would end too late is left out.
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
LLADA = Size(
    *(32, 4096, 12_288, 32, 126_464, (8, 1, 32), 64, 256, 32, 8, 3),
    seconds={"steps": 90, "equality": 15, "detection": 5, "captured": 30, "parallel": 40, "compiled": 150},
)
SMALL = Size(*(1, 16, 32, 2, 400, (2, 1), 4, 16, 8, 3, 1), seconds={})


class Part(NamedTuple):
    """What is measured in one go: its kind, the rows that it makes, and the batch of the network; 0 without it."""

    kind: str
    rows: Callable[[], Iterator[Row]]
    batch: int


def main() -> None:
    """Run the parts and print the table of each."""
    parser = arguments()
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=480, help="parts that would end later are left out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="a tiny network, on any device")
    args = parser.parse_args()
    size, device = SMALL if args.small else LLADA, torch.device(args.device)
    batches, problem = fitting(size, device)
    if problem:
        print(problem)
    begin, results = time.monotonic(), machine(device)
    for name, part in Bench(size, device).parts().items():
        late = time.monotonic() - begin + size.seconds.get(part.kind, 0) > args.seconds
        if late or (part.batch and part.batch not in batches):
            results["left out"].append(name)
        else:
            measure(name, part, results, args.out)
        write(results, args.out)
    print(f"\nleft out: {'; '.join(results['left out']) or 'nothing'}\nwritten: {args.out}")


def measure(name: str, part: Part, results: Row, out: Path) -> None:
    """Run a part, and print its table; what it measured before a failure stays."""
    rows: list[Row] = []
    results["parts"][name] = rows
    begin = time.monotonic()
    try:
        for row in part.rows():
            rows.append(row)
            write(results, out)
    except Exception as error:  # one part's failure leaves the others
        lines = str(error).splitlines() or [""]
        results["failed"][name] = f"{type(error).__name__}: {lines[0]}"
        print(f"\n{name} failed: {results['failed'][name]}")
    results["seconds"][name] = round(time.monotonic() - begin, 1)
    table(name, rows)


def write(results: Row, out: Path) -> None:
    """Write what is measured so far."""
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def machine(device: torch.device) -> Row:
    """What the figures depend on."""
    on_gpu = device.type == "cuda" and torch.cuda.is_available()
    name = torch.cuda.get_device_name(device) if on_gpu else platform.processor() or device.type
    facts = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda}
    return {**facts, "parts": {}, "seconds": {}, "failed": {}, "left out": []}


def memory_needed(size: Size, batch: int) -> int:
    """Bytes that a decode of so many rows takes: weights, the keys and values of all columns, logits and copies."""
    weights = size.layers * (4 * size.width**2 + 3 * size.width * size.inner) + 2 * size.vocabulary * size.width
    cached = batch * (size.prompt + size.length) * 2 * size.layers * size.width
    logits = 12 * batch * size.block * size.vocabulary
    return 2 * (weights + cached + logits)


def fitting(size: Size, device: torch.device) -> tuple[tuple[int, ...], str | None]:
    """The batches that the network can be run with here, and one sentence on what is lacking; None if nothing is."""
    if size is SMALL:
        return size.batches, None
    needed = {batch: memory_needed(size, batch) for batch in sorted(size.batches)}
    needs = ", ".join(f"{count / 1e9:.0f} GB for batch {batch}" for batch, count in needed.items())
    lacks = f"The large network needs a GPU with {needs}, and"
    problem = cuda_problem() or (f"--device is {device}" if device.type != "cuda" else None)
    if problem is not None:
        return (), f"{lacks} {problem}: only the parts without the network are run."
    free, _ = torch.cuda.mem_get_info(device)
    fit = tuple(batch for batch, count in needed.items() if count <= free)
    if len(fit) == len(needed):
        return fit, None
    run = f"batch {' and '.join(map(str, fit))} and the parts" if fit else "only the parts"
    return fit, f"{lacks} {free / 1e9:.0f} GB of this one are free: {run} without the network are run."


def cuda_problem() -> str | None:
    """Why CUDA cannot be used, in torch's words; None if it can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built for CPUs"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:  # no driver, one that is too old, no device
        return f"CUDA cannot be used ({(str(error).splitlines() or ['no reason'])[0].rstrip('. ')})"
    return None


class Bench:
    """The parts of the benchmark.

    Args:
        size: the network's shape.
        device: where it is.
    """

    def __init__(self, size: Size, device: torch.device) -> None:
        self.size, self.device = size, device
        self._made_keys: dict[tuple[str, int], list[WatermarkKey | None]] = {}

    def parts(self) -> dict[str, Part]:
        """The parts by name, the most important first."""
        batches, first = self.size.batches, self.size.batches[0]
        parts = {f"steps, batch {batch}": Part("steps", partial(self.steps, batch), batch) for batch in batches}
        parts["equality"] = Part("equality", self.equality, 0)
        parts["detection"] = Part("detection", self.detection, 0)
        for batch in batches:
            parts[f"captured, batch {batch}"] = Part("captured", partial(self.captured, batch), batch)
        parts["parallel"] = Part("parallel", self.parallel, first)
        for batch in batches:
            for cache in reversed(CACHES):
                name = f"compiled, batch {batch}, cache {cache}"
                parts[name] = Part("compiled", partial(self.compiled, batch, cache), batch)
        return parts

    @cached_property
    def model(self) -> NetworkDenoiser:
        """The network with random weights, made once on the device."""
        return random_network(self.size, self.device)

    # --- decoding ---

    def steps(self, batch: int) -> Iterator[Row]:
        """Milliseconds a step of a batch for each cache and kind of keys; kinds take turns."""
        for cache in CACHES:
            yield from self._measured(batch, cache, {"cache": cache}, "eager")

    def compiled(self, batch: int, cache: CacheMode) -> Iterator[Row]:
        """The same with the network compiled, which it then stays."""
        if self._is_compiled:
            yield from self._measured(batch, cache, {"cache": cache}, "compiled")

    @cached_property
    def _is_compiled(self) -> bool:
        return compile_network(self.model.network, "eager" if self.size is SMALL else "inductor")

    def parallel(self) -> Iterator[Row]:
        """Fast-dLLM's parallel decoding, and the position rule with lookahead."""
        batch = self.size.batches[0]
        # random weights are never confident: this threshold commits several tokens a step
        several = {"commit": "threshold", "threshold": 1e-4, "cache": "dual"}
        yield from self._measured(batch, "threshold", several, "eager")
        yield from self._measured(batch, "lookahead 3", {"lookahead": 3}, "eager", ("none", "position"))

    def _measured(
        self, batch: int, mode: str, settings: Row, runtime: str, kinds: tuple[str, ...] = KINDS
    ) -> Iterator[Row]:
        # the first run of each, which is not timed, counts waits and memory
        first = {kind: self._run(batch, kind, settings, watched=True) for kind in kinds}
        taken: dict[str, list[Row]] = {kind: [] for kind in kinds}
        forwards = []
        for _ in range(self.size.rounds):
            for kind in kinds:
                taken[kind].append(self._run(batch, kind, settings))
            forwards.append(self._forward_seconds(batch, settings.get("cache", "none")))
        plain = median(run["ms"] for run in taken[kinds[0]])
        for kind, runs in taken.items():
            step = median(run["ms"] for run in runs)
            yield {
                "batch": batch,
                "mode": mode,
                "keys": kind,
                "runtime": runtime,
                "ms a step": round(step, 3),
                "tokens a second": round(median(run["tokens a second"] for run in runs), 1),
                "of unmarked": round(step / plain, 4),
                "the mark's share": round(1 - plain / step, 4),
                "forward ms": round(1e3 * median(forwards), 3),
                "peak GB": round(first[kind]["peak"] / 1e9, 2),
                "waits a step": first[kind]["waits"],
            }

    def _run(self, batch: int, kind: str, settings: Row, *, watched: bool = False) -> Row:
        """Decode some steps of a batch; if it is watched, waits and memory are counted, which takes time."""
        size = self.size
        config = DecodeConfig(length=size.length, block_length=size.block, round_trip_check=False, **settings)
        side = side_of_rows(self._keys(kind, batch), self.device)
        peak(self.device, reset=True)
        iterator = decode_steps(self.model, self._canvas(batch), config, side, list(range(batch)))
        next(iterator)  # the first step begins the block
        synchronized(self.device)
        begin, tokens, count = time.perf_counter(), 0, 0
        with counted_waits(self.device if watched else None) as waits:
            for commits in iterator:
                tokens, count = tokens + len(commits.row), count + 1
                if count == size.steps:
                    break
        synchronized(self.device)
        seconds = time.perf_counter() - begin
        return {
            "ms": 1e3 * seconds / count,
            "tokens a second": tokens / seconds,
            "peak": peak(self.device),
            "waits": waits_of(waits) / count,
        }

    def _canvas(self, batch: int) -> Canvas:
        size, dice = self.size, torch.Generator().manual_seed(1)
        prompts = torch.randint(2, size.vocabulary - PADDING, (batch, size.prompt), generator=dice)
        return Canvas.after(prompts, size.length, self.model.mask_id).to(self.device)

    def _keys(self, kind: str, batch: int) -> list[WatermarkKey | None]:
        if (kind, batch) not in self._made_keys:  # the fingerprint of a large vocabulary takes a second
            self._made_keys[kind, batch] = keys_of(kind, batch, self.model)
        return self._made_keys[kind, batch]

    def _forward(self, batch: int, cache: CacheMode) -> Callable[[], Tensor]:
        """One forward of a session, in the first block."""
        session, canvas, owner = self.model.session(cache), self._canvas(batch), torch.arange(batch)
        stop = canvas.start + self.size.block
        session.begin(canvas.ids, canvas.start, stop)
        return lambda: session.step(canvas.ids, owner, canvas.start, stop)

    def _forward_seconds(self, batch: int, cache: CacheMode) -> float:
        """The seconds of one forward of a session, alone."""
        forward = self._forward(batch, cache)
        forward()
        return seconds(forward, self.device)

    # --- a step in a CUDA graph ---

    def captured(self, batch: int) -> Iterator[Row]:
        """A step in a CUDA graph against the same step run eagerly, and the rows in which both commit the same.

        First the mark's part of the step alone, on given logits, then with the forward. Without CUDA the steps run
        eagerly alone.
        """
        shape = (batch, self.size.block, self.size.vocabulary)
        given = torch.randn(shape, device=self.device, dtype=self.model.network.dtype)
        for kind in KINDS:
            yield self._captured(batch, "no forward", kind, lambda: given)
        for cache in ("none", "dual"):
            forward = self._forward(batch, cache)
            for kind in KINDS:
                yield self._captured(batch, cache, kind, forward)

    @torch.inference_mode()
    def _captured(self, batch: int, mode: str, kind: str, forward: Callable[[], Tensor]) -> Row:
        step, fill = self._step(batch, kind, forward)
        replay = None if self.device.type != "cuda" else captured(step, self.device)
        fill()  # the rows' keys, which the graph reads when it is replayed
        found, expected = (step if replay is None else replay)().clone(), step()
        same = (found == expected).all(1).tolist()
        times = {"eager": step} if replay is None else {"eager": step, "captured": replay}
        ms = {f"{name} ms": milliseconds(work, self.device) for name, work in times.items()}
        return {
            "batch": batch,
            "mode": mode,
            "keys": kind,
            "rows": batch,
            "equal": sum(same),
            "first difference": same.index(False) if False in same else None,
            "captured ms": None,
            **ms,
        }

    def _step(self, batch: int, kind: str, forward: Callable[[], Tensor]) -> tuple[Callable[[], Tensor], Any]:
        """A step of fixed shapes, which gives the committed tokens, -1 elsewhere; and what puts the rows' keys in."""
        size, model, device = self.size, self.model, self.device
        given = self._keys(kind, batch)
        store = KeyStore(given, size.vocabulary, device)
        keys = store.of([])._replace(rows=torch.full((batch,), -1, device=device))
        shape = (batch, size.block)
        masked = torch.ones(shape, dtype=torch.bool, device=device)
        masked[:, 0] = False  # one token stands, with which pairs are made
        positions = torch.arange(size.block, device=device).expand(shape)
        tokens = torch.full(shape, 7, device=device)
        forbidden = torch.arange(size.vocabulary - PADDING, size.vocabulary, device=device)
        forbidden = torch.cat([torch.tensor([model.mask_id], device=device), forbidden])
        seeds, config = torch.arange(batch, device=device), DecodeConfig(length=size.block, block_length=size.block)
        zeros = torch.zeros_like(seeds)

        def step() -> Tensor:
            block = Block(masked, positions, keys, tokens)
            draws = uniform_draws(seeds, zeros, positions)
            proposals = propose_block(forward(), forbidden, config, draws, block=block)
            return proposals.tokens.masked_fill(~mark(proposals, block, 1, config=config), -1)

        return step, lambda: keys.rows.copy_(store.of(given).rows)

    # --- without the network ---

    def equality(self) -> Iterator[Row]:
        """Whether the device writes what the CPU writes, of a model whose logits are exact."""
        toy, rows = ToyDenoiser(words=200), 16
        for rule in ("none", "one", "256", "each", "position"):
            config = DecodeConfig(length=32, block_length=8)
            prompts = torch.arange(2, 2 + 3 * rows).view(rows, 3)
            texts = []
            for device in (torch.device("cpu"), self.device):
                side = side_of_rows(keys_of(rule, rows, toy), device)
                texts.append(decode(replace(toy, device=device), prompts.to(device), config, side, list(range(rows))))
            same = [one.trace.token_id == other.trace.token_id for one, other in zip(*texts, strict=True)]
            first = same.index(False) if False in same else None
            yield {"keys": rule, "rows": rows, "equal": sum(same), "first difference": first}

    def detection(self) -> Iterator[Row]:
        """Detection of a batch on the CPU, for comparison."""
        toy = ToyDenoiser(words=2000)
        key = key_for(toy, "bigram")
        detector = Detector(key, tokenizer=toy.tokenizer)
        for batch in self.size.batches:
            ids = torch.randint(2, 2000, (batch, self.size.length), generator=torch.Generator().manual_seed(2)).tolist()
            begin = time.perf_counter()
            detector.detect_many(ids)
            yield {"batch": batch, "tokens": self.size.length, "ms": round(1e3 * (time.perf_counter() - begin), 2)}


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
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            network = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
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
        dtype=dtype,
        network=network,
    )


def key_for(model: Any, rule: str, subkeys: int = 1) -> WatermarkKey:
    """The benchmark's key for the vocabulary of a model; its secret is public, and protects nothing."""
    options: Row = {"subkeys": subkeys} if rule == "bigram" else {"code_length": 0}
    fresh = WatermarkKey.generate(model, rule=rule, **options)
    return replace(fresh, secret=hashlib.sha256(b"dgmark benchmark key: not a secret").digest(), key_id="benchmark")


def keys_of(kind: str, batch: int, model: Any) -> list[WatermarkKey | None]:
    """The keys of a batch: none, one, sub-keys of one, one of its own for each row, or one of rule position."""
    if kind == "none":
        return [None] * batch
    if kind == "256":
        key = key_for(model, "bigram", 256)
        return [key.subkey(37 * row % 256) for row in range(batch)]
    key = key_for(model, "position" if kind == "position" else "bigram")
    if kind == "each":
        return [replace(key, secret=bytes([row]) * SECRET_BYTES) for row in range(batch)]
    return [key] * batch


def synchronized(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """The seconds of one call, with what it left to do on the device."""
    synchronized(device)
    begin = time.perf_counter()
    work()
    synchronized(device)
    return time.perf_counter() - begin


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    """The median time of a call, in milliseconds."""
    return round(1e3 * median(seconds(work, device) for _ in range(REPEATS)), 3)


def captured(step: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """A step captured as a CUDA graph; what the call gives is overwritten by the next one."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(2):  # what is set up at a first call cannot be captured
            step()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()

    def replay() -> Tensor:
        graph.replay()
        return found

    return replay


def peak(device: torch.device, *, reset: bool = False) -> int:
    """The largest memory that tensors had on the device since it was reset, in bytes; 0 where nobody counts."""
    if device.type != "cuda":
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


@contextmanager
def counted_waits(device: torch.device | None) -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of CUDA's debug mode, which gives one for each wait of the host inside the block.

    None where nothing is counted: without a device, or on another one.
    """
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


def waits_of(given: list[warnings.WarningMessage]) -> int:
    """How many of these warnings are of waits."""
    return sum("synchronizing CUDA operation" in str(one.message) for one in given)


def table(name: str, rows: list[Row]) -> None:
    """Print the rows of a part."""
    if rows:
        print(f"\n{name}\n")
        print_header(list(rows[0]))
        for row in rows:
            print_row(list(row.values()))


if __name__ == "__main__":
    main()
