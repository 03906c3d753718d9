"""The kinds of resource as typed models: what a plan may say of a machine."""
