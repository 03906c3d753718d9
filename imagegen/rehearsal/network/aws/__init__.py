"""The AWS of a rehearsal: moto, with what it lacks for a Windows build added at its edge."""
