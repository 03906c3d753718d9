"""Explains invalid endpoints of the operator, which the SDK reads from the environment."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from imagegen.errors import ConfigError

# For all services, or for the service whose name is its suffix; a profile may also set endpoint_url.
_VARIABLE: Final = "AWS_ENDPOINT_URL"


@contextlib.contextmanager
def explain_endpoint_error(environ: Mapping[str, str]) -> Iterator[None]:
    """Turn the error of an invalid endpoint into one that names its variable."""
    try:
        yield
    except ValueError as error:
        variables = sorted(name for name in environ if name.startswith(_VARIABLE) and environ[name])
        guilty = next(
            (name for name in variables if environ[name] in str(error)), f"endpoint_url of the profile, or {_VARIABLE}"
        )
        raise ConfigError(
            f"{guilty} is not valid: {error}",
            hint=f"write a complete URL, for example https://host.example, or leave {guilty} out",
        ) from error
