"""A sandbox in which an ordinary build runs: a private network with stand-ins of the clouds, and a model machine."""
