"""Container images: their names, registries and tarballs."""
