"""Which of the caller's environment variables a child process sees. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# What any program needs to find its files and the network.
_COMMON: Final = frozenset(
    {
        "HOME",
        "PATH",
        "USER",
        "LOGNAME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "SHELL",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    }
)
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"})
# What Go's own documentation names, and what git and C compilers need where a module is not taken from a proxy.
_GO_PREFIXES: Final = ("GO", "CGO_", "GIT_")
_GO: Final = frozenset({"CC", "CXX", "AR", "PKG_CONFIG", "SSH_AUTH_SOCK", "NETRC"})
_SECRET_ENDINGS: Final = ("SECRET", "SECRET_ACCESS_KEY", "PASSWORD", "TOKEN", "SESSION_TOKEN", "ACCESSTOKEN")
_SHORTEST_SECRET: Final = 8


def packer_probe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For asking the user's own Packer what it is: with the user's own Packer settings."""
    settings = {n: environ[n] for n in ("PACKER_PLUGIN_PATH", "PACKER_CONFIG_DIR", "PACKER_CONFIG") if n in environ}
    return {**_chosen(environ, frozenset(), ()), **settings, "CHECKPOINT_DISABLE": "1"}


def go_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For `go`. A workspace file above the cache must not redirect the build."""
    return {**_chosen(environ, _GO, _GO_PREFIXES), "GOWORK": "off"}


def build_environment(
    environ: Mapping[str, str],
    tools: Mapping[str, str],
    variables: Mapping[str, str],
    names: frozenset[str],
) -> dict[str, str]:
    """For `packer build` and `packer validate`: no PKR_VAR_* and no PACKER_* of the user's but what is named.

    So a build is what its tree and its caller say. `names` are mostly those that its cloud's credentials go by; one
    that ends in `*` names all that begin so.
    """
    prefixes = tuple(name.removesuffix("*") for name in names if name.endswith("*"))
    chosen = _chosen(environ, names, prefixes)
    return {**chosen, **tools, **{f"PKR_VAR_{name}": value for name, value in variables.items()}}


def secret_values(environ: Mapping[str, str], secrets: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Values that no output may hold, longest first, so that one that contains another goes whole."""
    values = {
        value
        for name, value in environ.items()
        if (name in secrets or name.upper().endswith(_SECRET_ENDINGS)) and len(value) >= _SHORTEST_SECRET
    }
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def _chosen(environ: Mapping[str, str], names: frozenset[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name in _COMMON or name.upper() in _PROXIES or name in names or (prefixes and name.startswith(prefixes))
    }
