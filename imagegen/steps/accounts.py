"""The accounts that may change everything on a machine."""

from typing import Final

# SYSTEM, the administrators, the service of Windows that installs updates, and CREATOR OWNER. The last one stands for
# whoever makes a file, and in a closed folder only the others of this list can.
TRUSTED: Final = frozenset(
    {
        "S-1-5-18",
        "S-1-5-32-544",
        "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",
        "S-1-3-0",
    }
)
