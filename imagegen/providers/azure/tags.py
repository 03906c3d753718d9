"""The tags that imagegen writes on Azure, how component versions fit beside them, and which plugin can write so many.

Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of
from imagegen.providers.tags import REPORT, ImageTags, make_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.providers.azure.settings import Settings

# Before it 15 tags were the most (its #552).
MANY_TAGS_SINCE: Final = "2.5.1"
_FEW_TAGS: Final = 15
# Beside those of components; a test holds this against the templates.
OWN_TAGS: Final = frozenset(
    {
        *("build_date", "build_timestamp", "creationTimestamp", "imagegen_image_id", "imagegen_name", "os_version"),
        *("imagegen_version", "imagegen_run_id", "imagegen_expires_at", "imagegen_report"),
    }
)
# Packer does not write the report's tag; there is room for two labels of a run.
_TAKEN: Final = len(OWN_TAGS - {REPORT}) + 2


def image_tags(settings: Settings, versions: Mapping[str, str]) -> ImageTags:
    """As few as an older plugin takes, if sharing can do that; otherwise as many as Azure itself takes."""
    few = make_tags(settings.tags, versions, _FEW_TAGS - _TAKEN)
    is_enough = len(few) <= _FEW_TAGS - _TAKEN
    return few if is_enough else make_tags(settings.tags, versions, limit_of("azure_tags")["max"] - _TAKEN)


def has_many_tags(settings: Settings, versions: Mapping[str, str]) -> bool:
    """Whether an older plugin would reject the tags."""
    return len(image_tags(settings, versions)) > _FEW_TAGS - _TAKEN
