"""The decoding loop and its steps: from logits and bits to tokens on the canvas. It knows no key and no text."""
