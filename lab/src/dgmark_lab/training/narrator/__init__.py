"""The narrator: adapters that turn a small autoregressive model into a block diffusion model."""
