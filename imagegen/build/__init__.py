"""The only room that starts processes: finds the tools, writes the tree, runs Packer, shows how it goes."""
