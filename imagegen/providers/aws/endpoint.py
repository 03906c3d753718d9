"""An endpoint of the operator's own, which the SDK reads of the environment by itself."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from imagegen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# For all services, or with a service's name at its end; a profile may have one too, as endpoint_url.
_VARIABLE: Final = "AWS_ENDPOINT_URL"


@contextlib.contextmanager
def explained_endpoint(environ: Mapping[str, str]) -> Iterator[None]:
    """Around the making of a client: an endpoint that is none is told by its variable's name."""
    try:
        yield
    except ValueError as error:
        said = sorted(name for name in environ if name.startswith(_VARIABLE) and environ[name])
        guilty = [name for name in said if environ[name] in str(error)] or [
            f"endpoint_url of the profile, or {_VARIABLE}"
        ]
        raise ConfigError(
            f"{guilty[0]} is not valid: {error}",
            hint=f"write a whole URL, as https://host.example, or leave {guilty[0]} out",
        ) from error
