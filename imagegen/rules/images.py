"""The rules for the container images of the machine image. Pure."""

from collections.abc import Iterator

from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule
from imagegen.steps.image_name import ImageName


def _lists(given: RuleInput) -> list[tuple[YamlPath, str]]:
    config = given.config
    return [
        *((("windows", "container_images", at), name) for at, name in enumerate(config.windows.container_images)),
        *((("images", at), name) for at, name in enumerate(config.images)),
        *((("image_tarballs", at, "name"), one.name) for at, one in enumerate(config.image_tarballs)),
    ]


@rule(
    "mirrored-image-tag",
    ERROR,
    "With Docker, an image of artifacts.mirror must be named by its tag",
    why="Docker imports no image under a name with a digest",
)
def mirrored_image_tag(given: RuleInput) -> Iterator[Finding]:
    policy = given.config.artifacts
    for path, name in _lists(given) if given.config.runtime.docker and policy.mirror else ():
        image = ImageName.parse(name)
        if path[0] != "image_tarballs" and image.digest and image.registry not in policy.pull_from:
            yield Finding(
                path, f"{name} has a digest", f"write its tag, or write {image.registry} into artifacts.pull_from"
            )


@rule(
    "container-image-once",
    ERROR,
    "A container image must be listed once",
    why="two spellings of one name are one image",
)
def container_image_once(given: RuleInput) -> Iterator[Finding]:
    pause = given.config.kubernetes.pause_image
    seen: dict[str, tuple[YamlPath, str]] = {str(ImageName.parse(pause)): (("kubernetes",), pause)} if pause else {}
    for path, name in _lists(given):
        whole = str(ImageName.parse(name))
        before, spelled = seen.setdefault(whole, (path, name))
        # The pause image may be listed under its own name, and listed-twice is about one list with a value twice.
        is_fine = spelled == name and (before[0] == "kubernetes" or before[:-1] == path[:-1])
        if before != path and not is_fine:
            yield Finding(
                path, f"{name} is in the config already, as {spelled}: both are {whole}", "leave one of them out"
            )
