"""Sessions: the forwards of one decode, with what each kind of network can keep between them."""
