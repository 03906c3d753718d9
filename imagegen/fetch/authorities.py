"""The certificate authorities that imagegen trusts for HTTPS: public ones, those of the system, and those of a config.

Reads the bundle that the environment names.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from imagegen.base.errors import ConfigError

_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def find_authorities(
    environ: Mapping[str, str], added: tuple[bytes, ...] = (), *, with_system: bool = True
) -> ssl.SSLContext:
    """The trusted certificate authorities: public ones, those of the system unless it does not count, and those that
    are `added`, as DER. A bundle that the environment names takes the place of the first two."""
    if variable := bundle_variable(environ):
        file = environ[variable]
        try:
            return _authorities_of(file, Path(file).stat().st_mtime_ns, added)
        except OSError as error:
            raise ConfigError(
                f"{variable} names {file}, which is not a readable certificate bundle: {error.strerror or error}",
                hint=f"correct {variable}, or unset it",
            ) from error
    return _common_authorities(added, with_system=with_system)


def bundle_variable(environ: Mapping[str, str]) -> str:
    """The variable that names a bundle of authorities; empty if there is none."""
    return next((name for name in _VARIABLES if environ.get(name)), "")


# Reading hundreds of certificates takes longer than a small request, and each lock makes many.
@functools.lru_cache(maxsize=8)
def _authorities_of(file: str, _changed: int, added: tuple[bytes, ...]) -> ssl.SSLContext:
    return _with(ssl.create_default_context(cafile=file), added)


@functools.lru_cache(maxsize=8)
def _common_authorities(added: tuple[bytes, ...], *, with_system: bool) -> ssl.SSLContext:
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    if with_system:
        # A company's own authority is in the system's store, which a slim container does not have: both are used.
        context.load_default_certs()
    return _with(context, added)


def _with(context: ssl.SSLContext, added: tuple[bytes, ...]) -> ssl.SSLContext:
    for certificate in added:
        context.load_verify_locations(cadata=certificate)
    return context
