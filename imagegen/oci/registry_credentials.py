"""The credentials of container registries: from the environment to the forms in which programs take them. Pure.

No value of this module is ever written to a file or shown.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from imagegen.base.errors import ConfigError
from imagegen.steps.image_name import DOCKER_HUB

if TYPE_CHECKING:
    from collections.abc import Mapping

# Docker's own name for Docker Hub in its configuration (registry/config.go: IndexServer).
_DOCKER_HUB_KEY = "https://index.docker.io/v1/"


def read_credentials(names: Mapping[str, Mapping[str, str]], environ: Mapping[str, str]) -> dict[str, str]:
    """The credentials of each registry, as HTTP's Basic scheme has them: the base64 of `user:password`.

    `names` has the names of the variables of each registry.
    """
    found = {}
    for registry, variables in names.items():
        missing = [name for name in variables.values() if not environ.get(name)]
        if missing:
            raise ConfigError(
                f"registry_credentials: {' and '.join(missing)} must have the credentials of {registry}, and "
                f"{'is' if len(missing) == 1 else 'are'} not set",
                hint=f"set {' and '.join(missing)} in the environment of imagegen",
            )
        user_name = variables["username_env"]
        invalid = [name for name in variables.values() if not _is_line(environ[name])]
        invalid += [user_name] if ":" in environ[user_name] and user_name not in invalid else []
        if invalid:
            # The value is not shown: the variable may hold another secret by mistake.
            raise ConfigError(
                f"registry_credentials: the credentials of {registry} are not valid: see {' and '.join(invalid)}",
                hint=f"both variables must be one line of UTF-8 text, and {user_name} must have no colon",
            )
        user, password = environ[user_name], environ[variables["password_env"]]
        found[registry] = base64.b64encode(f"{user}:{password}".encode()).decode()
    return found


def _is_line(text: str) -> bool:
    """Whether it is one line of UTF-8. Python shows each other byte of a variable as a surrogate."""
    return not any(letter < " " or "\ud800" <= letter <= "\udfff" for letter in text)


def builder_variable(credentials: Mapping[str, str], *, for_docker: bool) -> str:
    """What the builder gets: the base64 of a configuration of Docker, so that no program has to quote it."""
    auths = {
        _DOCKER_HUB_KEY if for_docker and registry == DOCKER_HUB else registry: {"auth": auth}
        for registry, auth in sorted(credentials.items())
    }
    return base64.b64encode(json.dumps({"auths": auths}).encode()).decode() if auths else ""


def secret_forms(credentials: Mapping[str, str]) -> tuple[str, ...]:
    """Every text that a program could print of the credentials."""
    passwords = [base64.b64decode(auth).decode().partition(":")[2] for auth in credentials.values()]
    return (*credentials.values(), *passwords)
