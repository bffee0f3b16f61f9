"""Models: from the files of a checkpoint to a `Denoiser`, which gives the decoding loop its logits."""
