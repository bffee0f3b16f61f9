"""Sessions: the forwards of one decode, with the cache that each kind of network can keep between them."""
