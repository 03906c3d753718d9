"""The private network of a rehearsal: one proxy that answers for every host that a build or a publish uses."""
