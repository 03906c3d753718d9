"""The small typed words that a config's values are made of."""

from typing import Annotated

import pydantic

# Without leading zeros: one version has one spelling.
Version = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[a-z]+\.[0-9]+)?$", max_length=40
    ),
]
# Without user, query and fragment: the trees, the lock and the machine hold it, and a secret may be in these.
HttpsUrl = Annotated[
    str, pydantic.StringConstraints(pattern=r'^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[!"$->@-~]*)?$', max_length=2000)
]
# Without user and password: a proxy's credentials would lie on every node.
ProxyUrl = Annotated[str, pydantic.StringConstraints(pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]+)?/?$")]
HostName = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?$", max_length=260)
]
# A registry, as a folder of the machine names it: lower case, so that none is there twice.
Registry = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?$", max_length=260)
]
ImageRef = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?$", max_length=500
    ),
]
Kb = Annotated[str, pydantic.StringConstraints(pattern=r"^KB[0-9]{6,8}$")]
# A folder that stands unquoted in command lines: no blank in it.
PlainFolder = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z]:(\\[A-Za-z0-9_.-]*[A-Za-z0-9_-])+$")]
# Below the config's own folder, with forward slashes.
RelativePath = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
]
# One line that ends up in an ini file, a TOML text or a registry value.
Line = Annotated[str, pydantic.StringConstraints(pattern=r"^[ -~]+$", max_length=500)]
Duration = Annotated[str, pydantic.StringConstraints(pattern=r"^[1-9][0-9]*(s|m|h)$")]
Minutes = Annotated[int, pydantic.Field(ge=1, le=720)]
