"""How baselines steer the decoding loop: biases and noise on the model's device. Needs torch, unlike detection."""
