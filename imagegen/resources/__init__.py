"""The kinds of resource as typed models."""
