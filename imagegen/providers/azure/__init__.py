"""Azure: versions of a Compute Gallery's image, replicated to other regions."""
