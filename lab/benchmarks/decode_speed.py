"""Measure the cost of each decoding mode, and the published loop against ours.

Every mode decodes the same prompts (64 tokens) on the same canvas (256 tokens to come, blocks of 32) and is stopped
after the same number of tokens. The modes take turns; a mode's figure is the median over prompts of its time divided by
that of the uncached, unmarked decode of the same prompt. Times are CPU seconds of this process, which depend less on
other work on the machine than wall-clock time.
"""

import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import Glm4MoeConfig

from dgmark import DecodeConfig, load_model
from dgmark.checkpoint.families import LLADA2
from dgmark.decode import Canvas, RoundTrip, decode_steps, side_of_rows
from dgmark.models.families.llada2 import Llada2Network
from dgmark.models.load import NetworkDenoiser
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from dgmark_lab.training.config import LlamaNetwork
from dgmark_lab.training.networks import build_network
from shared import arguments, bench_key, print_header, print_row

PROMPT, LENGTH, BLOCK = 64, 256, 32
PLAIN = "unmarked"
Mode = tuple[str | None, dict[str, Any]]
# mode -> (rule of the key, settings); k is the lookahead of rule position
MODES: dict[str, Mode] = {
    PLAIN: (None, {}),
    "bigram": ("bigram", {}),
    "bigram, no round-trip check": ("bigram", {"round_trip_check": False}),
    "bigram, 2 a step": ("bigram", {"steps": LENGTH // 2}),
    "k = 1": ("position", {}),
    "k = 1, alpha 1": ("position", {"alpha": 1.0}),
    "k = 1, no round-trip check": ("position", {"round_trip_check": False}),
    "k = 3": ("position", {"lookahead": 3}),
    "k = 5": ("position", {"lookahead": 5}),
    "unmarked, prefix": (None, {"cache": "prefix"}),
    "k = 3, prefix": ("position", {"cache": "prefix", "lookahead": 3}),
    "unmarked, dual": (None, {"cache": "dual"}),
    "bigram, dual": ("bigram", {"cache": "dual"}),
    "bigram, dual, no round-trip check": ("bigram", {"cache": "dual", "round_trip_check": False}),
    "k = 1, dual": ("position", {"cache": "dual"}),
    "k = 1, dual, no round-trip check": ("position", {"cache": "dual", "round_trip_check": False}),
    "k = 3, dual": ("position", {"cache": "dual", "lookahead": 3}),
    "k = 5, dual": ("position", {"cache": "dual", "lookahead": 5}),
    "k = 1, threshold .9": ("position", {"commit": "threshold"}),
    "k = 1, threshold .9, dual": ("position", {"commit": "threshold", "cache": "dual"}),
    "k = 1, threshold .5": ("position", {"commit": "threshold", "threshold": 0.5}),
    "k = 1, greedy, threshold .5": ("position", {"commit": "threshold", "threshold": 0.5, "temperature": 0}),
    "k = 1, 2 a step": ("position", {"steps": LENGTH // 2}),
    "k = 1, 2 a step, dual": ("position", {"steps": LENGTH // 2, "cache": "dual"}),
}


def main() -> None:
    """Print the tables."""
    parser = arguments()
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="tokens after which a decode is stopped")
    parser.add_argument("--batch", type=int, default=1, help="rows of a batch")
    parser.add_argument("--mode", choices=MODES, action="append", help="only these, in addition to the reference mode")
    parser.add_argument(
        "--random", choices=RANDOM, help="random weights in the architecture and vocabulary of LLaDA or LLaDA 2, small"
    )
    args = parser.parse_args()
    builtin = load_model()
    assert isinstance(builtin, NetworkDenoiser)
    model = RANDOM[args.random](builtin) if args.random else builtin
    model = replace(model, end_ids=())  # no row ends early, so that all modes do the same work
    prompts = _prompts(model, args.prompts, args.batch)
    print(f"{args.prompts} prompts, batch {args.batch}, {args.tokens} tokens, {torch.get_num_threads()} threads")
    # a model that sees nothing after a block has an exact cache of what stands before it, and no other
    known = [name for name in MODES if args.random != "llada2" or MODES[name][1].get("cache") != "dual"]
    _modes(model, prompts, args.tokens, {PLAIN: MODES[PLAIN]} | {name: MODES[name] for name in args.mode or known})
    if args.random != "llada2":
        _published(model, prompts, args.tokens)


def random_llada(builtin: NetworkDenoiser) -> NetworkDenoiser:
    """Make a model with LLaDA's architecture and random weights: 16 blocks of width 448, 126,464 padded ids."""
    sizes, vocabulary = LlamaNetwork(width=448, blocks=16, heads=7, hidden=1216, context=2048), 126_464
    torch.manual_seed(0)
    network = build_network(sizes, vocabulary, builtin.mask_id).train(False)
    return replace(builtin, name="random", vocab_size=vocabulary, network=network)


def random_llada2(builtin: NetworkDenoiser) -> NetworkDenoiser:
    """Make a model with LLaDA 2's architecture and random weights: 8 blocks of width 256, 16 experts, 157,184 ids.

    Four experts read each token; the mask is causal between blocks of 32, counted from the start of the canvas.
    """
    width, layers, vocabulary = 256, 8, 157_184
    config = Glm4MoeConfig(
        hidden_size=width,
        intermediate_size=768,
        moe_intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        n_routed_experts=16,
        n_shared_experts=1,
        num_experts_per_tok=4,
        n_group=4,
        topk_group=2,
        first_k_dense_replace=1,
        use_qk_norm=True,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    network = Llada2Network(config).train(False)
    facts = {
        name: getattr(LLADA2, name) for name in ("defaults", "confidence_source", "block_origin", "block_multiple")
    }
    return replace(builtin, name="random", vocab_size=vocabulary, network=network, family=LLADA2, pads=False, **facts)


RANDOM = {"llada": random_llada, "llada2": random_llada2}


def _modes(model: NetworkDenoiser, prompts: list[Tensor], tokens: int, modes: dict[str, Mode]) -> None:
    """Print the time of each mode over that of the unmarked, uncached one."""
    seconds: dict[str, list[float]] = {name: [] for name in modes}
    forwards: dict[str, list[float]] = {name: [] for name in modes}
    _decode(model, prompts[0], 8, *MODES[PLAIN])
    for prompt in prompts:
        for name, mode in modes.items():
            took, run, _ = _decode(model, prompt, tokens, *mode)
            seconds[name].append(took)
            forwards[name].append(run / tokens / len(prompt))
    print_header(["mode", "time / unmarked, uncached", "min", "max", "canvases through the model a token"])
    for name, took_by_mode in seconds.items():
        ratios = [one / plain for one, plain in zip(took_by_mode, seconds[PLAIN], strict=True)]
        times = [f"{figure(ratios):.3f}" for figure in (median, min, max)]
        print_row([name, *times, f"{median(forwards[name]):.2f}"])
    print(f"ms a token, unmarked: {1e3 * median(seconds[PLAIN]) / tokens / len(prompts[0]):.1f}")


def _decode(
    model: NetworkDenoiser, prompt: Tensor, tokens: int, rule: str | None, settings: dict[str, Any]
) -> tuple[float, int, Tensor]:
    """Decode the first `tokens` tokens of each row; return CPU seconds, the number of canvases, and the ids."""
    config = DecodeConfig(length=LENGTH, block_length=BLOCK, **settings)
    canvas = Canvas.after(prompt, LENGTH, model.mask_id)
    key = None if rule is None else bench_key(rule)
    key = key and replace(key, spec=replace(key.spec, table_size=model.vocab_size))
    marking = side_of_rows([key] * len(prompt), model.device)
    round_trip = RoundTrip.of(model.tokenizer, model.mask_id) if config.round_trip_check else None
    begin, steps, committed = time.process_time(), [], 0
    for commits in decode_steps(model, canvas, config, marking, list(range(len(prompt))), round_trip):
        steps.append(commits)
        committed += len(commits.row)
        if committed >= tokens * len(prompt):
            break
    took, ids = time.process_time() - begin, canvas.ids.clone()
    for commits in steps:
        ids[commits.row, canvas.start + commits.place] = commits.token
    return took, sum(commits.forwards for commits in steps), ids


def _published(model: NetworkDenoiser, prompts: list[Tensor], tokens: int) -> None:
    """Compare our unmarked loop with LLaDA's published one, greedy and sampling: time and, if greedy, tokens."""
    for temperature in (0.0, 1.0):
        ratios, same = [], []
        for prompt in prompts:
            begin = time.process_time()
            theirs = published(model, prompt, tokens, temperature)
            took = time.process_time() - begin
            ours, _, ids = _decode(model, prompt, tokens, None, {"temperature": temperature, "round_trip_check": False})
            ratios.append(took / ours)
            same.append(torch.equal(theirs, ids))
        agreement = "" if temperature else f"; same tokens in {sum(same)} of {len(same)}"
        print(f"published loop / ours at T = {temperature:g}: {median(ratios):.2f}{agreement}")


def published(model: NetworkDenoiser, prompt: Tensor, tokens: int, temperature: float) -> Tensor:
    """Decode as LLaDA's repository does, reimplemented: noise and softmax in float64, for every position of the canvas.

    One token a step, stopped after `tokens`; blocks of 32.
    """
    x = torch.cat([prompt, prompt.new_full((len(prompt), LENGTH), model.mask_id)], 1)
    for step in range(tokens):
        stop = prompt.shape[1] + (step // BLOCK + 1) * BLOCK
        masked = x == model.mask_id
        logits = model(x)
        noised = logits
        if temperature:
            double = logits.to(torch.float64)
            noised = double.exp() / (-torch.log(torch.rand_like(double))) ** temperature
        proposal = noised.argmax(-1)
        confidence = logits.to(torch.float64).softmax(-1).gather(-1, proposal[..., None])[..., 0]
        confidence[:, stop:] = -torch.inf
        confidence = confidence.where(masked, -torch.inf)
        best = confidence.topk(1, -1).indices
        x.scatter_(1, best, proposal.gather(1, best))
    return x


def _prompts(model: NetworkDenoiser, count: int, batch: int) -> list[Tensor]:
    """Make batches of prompts of 64 tokens; short ones are repeated."""
    rows = [(model.tokenizer.encode(prompt) * PROMPT)[:PROMPT] for prompt in builtin_prompts()]
    return [torch.tensor([rows[(i * batch + j) % len(rows)] for j in range(batch)]) for i in range(count)]


if __name__ == "__main__":
    main()
