"""Reads name, version and maker of an MSI package, from its table Property. Reads the file, within bounds.

A damaged table counts as none: it decides nothing.
"""

import struct
from typing import IO, Final

from imagegen.authenticode.compound_file import CompoundFile
from imagegen.authenticode.errors import MalformedData
from imagegen.inspect.installer_database import Database

# As the version resource of a program calls them.
_SHOWN: Final = {"ProductVersion": "ProductVersion", "ProductName": "ProductName", "Manufacturer": "CompanyName"}

_LONGEST_TEXT: Final = 200


def read_properties(file: IO[bytes]) -> dict[str, str]:
    """Version, name and maker, under the names that they have in a version resource. Empty for any other file."""
    try:
        rows = Database(CompoundFile(file)).texts("Property", "Property", "Value")
    except (MalformedData, struct.error, IndexError, ValueError):
        return {}
    found = {row[0]: row[1] for row in rows}
    return {shown: found[name][:_LONGEST_TEXT] for name, shown in _SHOWN.items() if found.get(name)}
