"""The address of every model machine: in its cloud's network and metadata, and on its network card."""

NODE_ADDRESS, NODE_NETWORK = "10.0.0.7", "10.0.0.0/24"
