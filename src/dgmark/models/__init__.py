"""Models: from the files of a checkpoint to a `Denoiser`, which the decoding loop asks for logits."""
