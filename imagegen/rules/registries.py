"""The rules for the credentials of registries. Pure."""

from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import minor, numbers
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule, simple_rule
from imagegen.steps.image_name import ImageName

_KEY: Final = "registry_credentials"
# crictl reads credentials from CRICTL_AUTH since 1.24: https://github.com/kubernetes-sigs/cri-tools/pull/904. Older
# ones take them only on the command line, which Windows can log.
_FIRST_CRICTL: Final = "1.24"


@rule("registry-credentials-image", ERROR, "The build must pull an image of each registry with credentials")
def registry_credentials_image(given: RuleInput) -> Iterator[Finding]:
    registries = {ImageName.parse(name).registry for spec in given.specs.values() for name in spec.pulled_images}
    for index, one in enumerate(given.config.registry_credentials):
        if one.registry not in registries:
            yield Finding(
                (_KEY, index, "registry"),
                f"the build pulls no image from {one.registry}, so nothing would use these credentials",
                "leave them out, or write an image of this registry into images",
            )


@rule("registry-credentials-mirror", ERROR, "A registry with credentials must have no mirrors")
def registry_credentials_mirror(given: RuleInput) -> Iterator[Finding]:
    containerd = given.config.runtime.containerd
    for index, one in enumerate(given.config.registry_credentials):
        if containerd and one.registry in containerd.registry_mirrors:
            yield Finding(
                (_KEY, index, "registry"),
                f"containerd would also send these credentials to the mirrors of {one.registry}",
                f"leave them out, or leave runtime.containerd.registry_mirrors.{one.registry} out",
            )


registry_credentials_kubernetes = simple_rule(
    "registry-credentials-kubernetes",
    ERROR,
    f"With containerd, registry_credentials requires Kubernetes {_FIRST_CRICTL} or later",
    lambda given: (
        given.config.registry_credentials
        and given.config.runtime.containerd
        and numbers(minor(given.config.kubernetes.version)) < numbers(_FIRST_CRICTL)
    ),
    Finding(
        (_KEY,),
        f"crictl before {_FIRST_CRICTL} takes credentials only on its command line, which Windows can log",
        "list the image in image_tarballs, or copy it to a registry that needs no credentials",
    ),
)
