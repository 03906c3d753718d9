"""Proof of what was built: documents about a manifest, their signatures, and the comparison of all of them."""
