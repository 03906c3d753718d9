"""The release record as a file of the bundle (docs/guest.md)."""

from typing import Final

SOURCE: Final = "files/release-record/manifest.json"
"""Its path in the bundle."""
UNDECIDED: Final = "0" * 64
"""Its sha256 in the image part of the plan: the record has the identity of this part."""
RESOURCE: Final = r"release-record/file:C:\ProgramData\imagegen\manifest.json"
"""The id of the resource that puts it on the machine."""
