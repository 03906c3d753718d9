"""How long a test waits for something that must happen."""

from typing import Final

# Ends a test that hangs, and nothing else: no load on a machine makes a test as slow as that.
HANG_S: Final = 1800.0
