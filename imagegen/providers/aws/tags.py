"""The tags of images on AWS. Pure."""

from collections.abc import Mapping
from typing import Final

from imagegen.catalog.facts import limit_of
from imagegen.providers.aws.settings import Settings
from imagegen.providers.tags import ImageTags, make_tags

# In addition to those of components; a test compares them with the templates.
OWN_TAGS: Final = frozenset(
    {
        *("build_date", "build_timestamp", "creationTimestamp", "imagegen_image_id", "imagegen_name"),
        *("imagegen_version", "imagegen_run_id", "imagegen_expires_at", "imagegen_report"),
        *("Name", "distribution", "distribution_version", "source_ami", "source_ami_name"),
    }
)


def image_tags(settings: Settings, versions: Mapping[str, str]) -> ImageTags:
    """The tags of an image, within the limit of AWS."""
    return make_tags(settings.tags, versions, limit_of("aws_tags")["max"] - len(OWN_TAGS))
