"""The certificate authorities that imagegen trusts for HTTPS: public ones, those of the system, and those of a config.

Reads the bundle that the environment names.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from imagegen.errors import ConfigError

_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def find_authorities(environ: Mapping[str, str], added: tuple[bytes, ...] = ()) -> ssl.SSLContext:
    """The trusted certificate authorities, and those that are `added`, as DER. A bundle that the environment names
    replaces the public ones."""
    if variable := bundle_variable(environ):
        file = environ[variable]
        try:
            return _authorities_of(file, Path(file).stat().st_mtime_ns, added)
        except OSError as error:
            raise ConfigError(
                f"{variable} names {file}, which is not a readable certificate bundle: {error.strerror or error}",
                hint=f"correct {variable}, or unset it",
            ) from error
    return _common_authorities(added)


def bundle_variable(environ: Mapping[str, str]) -> str:
    """The variable that names a bundle of authorities; empty if there is none."""
    return next((name for name in _VARIABLES if environ.get(name)), "")


# Reading hundreds of certificates takes longer than a small request, and each lock makes many.
@functools.lru_cache(maxsize=8)
def _authorities_of(file: str, _changed: int, added: tuple[bytes, ...]) -> ssl.SSLContext:
    return _with(ssl.create_default_context(cafile=file), added)


@functools.lru_cache(maxsize=8)
def _common_authorities(added: tuple[bytes, ...]) -> ssl.SSLContext:
    # A company's own authority is in the system's store, which a slim container does not have: both are used.
    context = public_authorities(added)
    context.load_default_certs()
    return context


def public_authorities(added: tuple[bytes, ...] = ()) -> ssl.SSLContext:
    """The public authorities alone, whatever this machine trusts, and those that are added."""
    import httpx

    return _with(httpx.create_ssl_context(trust_env=False), added)


def _with(context: ssl.SSLContext, added: tuple[bytes, ...]) -> ssl.SSLContext:
    for certificate in added:
        context.load_verify_locations(cadata=certificate)
    return context
