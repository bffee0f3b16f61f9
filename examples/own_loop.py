"""The mark in a decoding loop of your own: `python own_loop.py key.json "Once upon a time"`.

Two calls do it: `propose_block` draws under the keys, and `mark` says which places to commit (docs/own-loop.md).
"""

import sys

import torch

import dgmark
from dgmark.decode import DecodeConfig
from dgmark.engines import Block, KeyStore, mark, propose_block, uniform_draws


def write(model: dgmark.Denoiser, key: dgmark.WatermarkKey, prompt: str, length: int = 64, seed: int = 0) -> str:
    """One block of text, filled one token a step; a loop with more blocks repeats this."""
    config, ids = DecodeConfig(temperature=0.5), model.tokenizer.encode(prompt)
    start, stop = len(ids), len(ids) + length
    canvas = torch.tensor([[*ids, *[model.mask_id] * length]])
    keys = KeyStore([key], key.spec.table_size, "cpu").of([key])
    positions, forbidden = torch.arange(length)[None], torch.tensor([model.mask_id, *model.end_ids])
    for step in range(length):
        masked = canvas[:, start:] == model.mask_id
        block = Block(masked, positions, keys, canvas[:, :stop])
        uniforms = uniform_draws(torch.tensor([seed]), torch.tensor([step]), positions)
        proposals = propose_block(model(canvas)[:, start:], forbidden, config, uniforms, block=block)
        commit = mark(proposals, block, 1, config=config)
        canvas[:, start:] = torch.where(commit, proposals.tokens, canvas[:, start:])
    return model.tokenizer.decode(canvas[0, start:].tolist())


if __name__ == "__main__":
    with torch.inference_mode():
        print(write(dgmark.load_model("storyteller"), dgmark.WatermarkKey.load(sys.argv[1]).for_text(), sys.argv[2]))
