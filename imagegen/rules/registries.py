"""The rules for the credentials of registries. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import minor, numbers, table
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


@rule("registry-credentials-once", ERROR, "A registry must be listed once in registry_credentials")
def registry_credentials_once(given: RuleInput) -> Iterator[Finding]:
    seen = set()
    for index, one in enumerate(given.config.registry_credentials):
        if one.registry in seen:
            yield Finding((_KEY, index, "registry"), f"{one.registry} is listed above", "leave one of them out")
        seen.add(one.registry)


@rule("registry-credentials-variable", ERROR, "Credentials must be in two variables of their own")
def registry_credentials_variable(given: RuleInput) -> Iterator[Finding]:
    rows = table("variables")["names"]
    for index, one in enumerate(given.config.registry_credentials):
        for key, name in (("username_env", one.username_env), ("password_env", one.password_env)):
            if row := next((row for row in rows if re.fullmatch("|".join(row["patterns"]), name)), None):
                yield Finding(
                    (_KEY, index, key),
                    f"{name} does not hold the credentials of a registry: {row['means']}",
                    "write the name of a variable that holds only this value, for example REGISTRY_PASSWORD",
                )
        if one.username_env == one.password_env:
            yield Finding(
                (_KEY, index, "password_env"),
                f"{one.password_env} cannot hold both the user name and the password",
                "write the names of two variables",
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
