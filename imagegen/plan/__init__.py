"""Plans: everything that was decided for an image, and the identity of the image."""
