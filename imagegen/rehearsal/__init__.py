"""A private network in which an ordinary build runs: a proxy that is every cloud, and a model of a Windows machine."""
