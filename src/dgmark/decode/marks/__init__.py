"""What a watermark does to a decoding step: the decode side of each rule, and the keys of a batch."""
