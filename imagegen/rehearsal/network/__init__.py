"""The private network of a rehearsal: one proxy that plays every host a build or a publish may ask."""
