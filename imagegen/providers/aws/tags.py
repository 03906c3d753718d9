"""The tags that imagegen writes on AWS, and how component versions fit beside them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of
from imagegen.providers.tags import ImageTags, make_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.providers.aws.settings import Settings

# Beside those of components; a test holds this against the templates.
OWN_TAGS: Final = frozenset(
    {
        *("build_date", "build_timestamp", "creationTimestamp", "imagegen_image_id", "imagegen_name"),
        *("imagegen_version", "imagegen_run_id", "imagegen_expires_at", "imagegen_report"),
        *("Name", "distribution", "distribution_version", "source_ami", "source_ami_name"),
    }
)


def image_tags(settings: Settings, versions: Mapping[str, str]) -> ImageTags:
    """As many as AWS takes."""
    return make_tags(settings.tags, versions, limit_of("aws_tags")["max"] - len(OWN_TAGS))
