"""Leftovers of dead runs in a cloud: found, judged by the journals of this machine and their expiry, and removed."""
