"""What the mark costs in decoding: the same prompts and seeds with and without it; where a step's time goes.

Times are CPU seconds of this process, which other work on the machine disturbs less than the clock on the wall.
"""

import argparse
import json
import time
from statistics import median

import torch

from corpus import PROMPTS, bench_key
from dgmark import WatermarkKey, generate, load_model
from dgmark.models import NetworkDenoiser


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    model, key = load_model(), bench_key()
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text().splitlines()][: args.prompts]
    seconds(model, prompts[0], None, 32, 0)
    pairs = []
    for seed, prompt in enumerate(prompts):
        order = [None, key] if seed % 2 else [key, None]
        took = {one is not None: seconds(model, prompt, one, args.length, seed) for one in order}
        pairs.append((took[True], took[False]))
    ratios = [marked / plain for marked, plain in pairs]
    print(f"{len(pairs)} prompts, {args.length} tokens, {torch.get_num_threads()} threads, {model.dtype}")
    print(f"ms a token without the mark: {1e3 * median(plain for _, plain in pairs) / args.length:.1f}")
    print(
        f"marked / unmarked, pair by pair: median {median(ratios):.4f} (min {min(ratios):.4f}, max {max(ratios):.4f})"
    )
    inside, whole = forward_share(model, key, prompts[0], args.length)
    print(f"outside the model's forward: {1 - inside / whole:.1%} of a marked step")


def seconds(model: NetworkDenoiser, prompt: str, key: WatermarkKey | None, length: int, seed: int) -> float:
    """CPU seconds of one text; ending early is prevented, so that all texts take as many steps."""
    begin = time.process_time()
    made = generate(_endless(model), prompt, key=key, length=length, seed=seed)
    took = time.process_time() - begin
    assert len(made[0].trace.step) == length
    return took


def forward_share(model: NetworkDenoiser, key: WatermarkKey, prompt: str, length: int) -> tuple[float, float]:
    """CPU seconds spent in the model's forward, and in all."""
    inside = 0.0

    class Timed(NetworkDenoiser):
        def window(self, ids: torch.Tensor, start: int, stop: int) -> torch.Tensor:
            nonlocal inside
            begin = time.process_time()
            logits = super().window(ids, start, stop)
            inside += time.process_time() - begin
            return logits

    timed = Timed(**vars(_endless(model)))
    begin = time.process_time()
    generate(timed, prompt, key=key, length=length)
    return inside, time.process_time() - begin


def _endless(model: NetworkDenoiser) -> NetworkDenoiser:
    return NetworkDenoiser(**{**vars(model), "end_ids": ()})


if __name__ == "__main__":
    main()
