"""Reports of a detection that one can file: a page or a JSON document, signed if one has a signing key."""
