"""The narrator: adapters that make a block diffusion model of a small autoregressive one. Not part of the package."""
