"""Chooses the environment variables that a child process sees. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

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
# The variables of Go's documentation, and those of git and C compilers, for modules that come from no proxy.
_GO_PREFIXES: Final = ("GO", "CGO_", "GIT_")
_GO: Final = frozenset({"CC", "CXX", "AR", "PKG_CONFIG", "SSH_AUTH_SOCK", "NETRC"})
_SECRET_ENDINGS: Final = ("SECRET", "SECRET_ACCESS_KEY", "PASSWORD", "TOKEN", "SESSION_TOKEN", "ACCESSTOKEN")
_SHORTEST_SECRET: Final = 8


def packer_probe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For commands that inspect the user's Packer, with the user's Packer settings."""
    settings = {n: environ[n] for n in ("PACKER_PLUGIN_PATH", "PACKER_CONFIG_DIR", "PACKER_CONFIG") if n in environ}
    return {**_choose(environ, frozenset(), ()), **settings, "CHECKPOINT_DISABLE": "1"}


def go_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For `go`. A workspace file above the cache must not redirect the build."""
    return {**_choose(environ, _GO, _GO_PREFIXES), "GOWORK": "off"}


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For `pip install --target`, with the user's package indexes. Without a network it gives up soon."""
    patience = {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "10"}
    # Settings of the user that would contradict --target.
    ours = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**patience, **_choose(environ, frozenset({"NETRC"}), ("PIP_",)), **ours}


def build_environment(
    environ: Mapping[str, str],
    tools: Mapping[str, str],
    variables: Mapping[str, str],
    names: frozenset[str],
) -> dict[str, str]:
    """For `packer build` and `packer validate`: of the user's PKR_VAR_* and PACKER_* variables only those in `names`.

    So the user's settings cannot change a build. `names` are mostly the variables of the cloud's credentials. A name
    that ends with `*` is a prefix.
    """
    chosen = _choose(environ, names, tuple(name.removesuffix("*") for name in names if name.endswith("*")))
    return {**chosen, **tools, **{f"PKR_VAR_{name}": value for name, value in variables.items()}}


def secret_values(
    environ: Mapping[str, str], secrets: frozenset[str] = frozenset(), texts: Iterable[str] = ()
) -> tuple[str, ...]:
    """Values that no output may hold. The longest come first, so that a value that contains another is hidden whole."""
    named = (value for name, value in environ.items() if name in secrets or name.upper().endswith(_SECRET_ENDINGS))
    values = {value for value in (*named, *texts) if len(value) >= _SHORTEST_SECRET}
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def _choose(environ: Mapping[str, str], names: frozenset[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name in _COMMON or name.upper() in _PROXIES or name in names or (prefixes and name.startswith(prefixes))
    }
