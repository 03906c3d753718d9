"""What the cluster needs for an image: manifests and commands that an operator reads, changes and applies.

`samples.json` says when each sample applies. Its template is in `templates/`; those of a cloud are in the folder
`samples/` of its provider.
"""
