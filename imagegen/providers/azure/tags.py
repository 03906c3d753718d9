"""The tags of images on Azure, within the limits of Azure and of Packer's plugin. Pure."""

from collections.abc import Mapping
from typing import Final

from imagegen.catalog.facts import limit_of
from imagegen.providers.azure.settings import Settings
from imagegen.providers.tags import REPORT, ImageTags, make_tags

# Earlier versions accept at most 15 tags (issue #552).
MANY_TAGS_SINCE: Final = "2.5.1"
_FEW_TAGS: Final = 15
# In addition to those of components; a test compares them with the templates.
OWN_TAGS: Final = frozenset(
    {
        *("build_date", "build_timestamp", "creationTimestamp", "imagegen_image_id", "imagegen_name", "os_version"),
        *("imagegen_version", "imagegen_run_id", "imagegen_expires_at", "imagegen_report"),
    }
)
# Without the tag of the report, which Packer does not write; with two labels of a run.
_TAKEN: Final = len(OWN_TAGS - {REPORT}) + 2


def image_tags(settings: Settings, versions: Mapping[str, str]) -> ImageTags:
    """The tags of an image: as few as an older plugin accepts if possible, else within the limit of Azure."""
    few = make_tags(settings.tags, versions, _FEW_TAGS - _TAKEN)
    if len(few) <= _FEW_TAGS - _TAKEN:
        return few
    return make_tags(settings.tags, versions, limit_of("azure_tags")["max"] - _TAKEN)


def has_many_tags(settings: Settings, versions: Mapping[str, str]) -> bool:
    """Whether an older plugin would reject the tags."""
    return len(image_tags(settings, versions)) > _FEW_TAGS - _TAKEN
