"""The rules for the container images that are pulled onto the image. Pure."""

from collections.abc import Iterator

from imagegen.documents.yaml import YamlPath
from imagegen.judging import ERROR, Finding, RuleInput, rule
from imagegen.resources.image_name import ImageName


def _lists(given: RuleInput) -> list[tuple[YamlPath, str]]:
    config = given.config
    return [
        *((("windows", "container_images", at), name) for at, name in enumerate(config.windows.container_images)),
        *((("images", at), name) for at, name in enumerate(config.images)),
    ]


@rule(
    "container-images-runtime",
    ERROR,
    "Container images must be pulled onto the image with containerd",
    why="they are in containerd's store, which Docker does not read",
)
def container_images_runtime(given: RuleInput) -> Iterator[Finding]:
    for path, name in _lists(given)[:1]:
        if given.config.runtime.docker:
            yield Finding(
                path[:-1],
                f"{name} would be pulled with containerd, but the runtime is Docker",
                "leave the list out, or choose containerd",
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
