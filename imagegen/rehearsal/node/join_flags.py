"""The command line of `kubeadm join`, read as pflag reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.node.decode import KubeadmError

if TYPE_CHECKING:
    from collections.abc import Sequence

# The flags that the rehearsal has a model of. Each needs a value.
_MODELLED = frozenset({"config", "v", "node-name", "cri-socket", "ignore-preflight-errors"})
# The other flags that kubeadm join has in some minor, with those of the whole program and of klog.
_NOT_MODELLED = frozenset(
    {
        *("apiserver-advertise-address", "apiserver-bind-port", "certificate-key", "control-plane", "discovery-file"),
        *("discovery-token", "discovery-token-ca-cert-hash", "discovery-token-unsafe-skip-ca-verification", "dry-run"),
        *("experimental-control-plane", "experimental-kustomize", "experimental-patches", "feature-gates", "help"),
        *("patches", "rootfs", "skip-phases", "tls-bootstrap-token", "token", "version"),
        *("add-dir-header", "alsologtostderr", "log-backtrace-at", "log-dir", "log-file", "log-file-max-size"),
        *("log-flush-frequency", "logtostderr", "one-output", "skip-headers", "skip-log-headers", "stderrthreshold"),
        "vmodule",
    }
)
# pflag gives a flag of klog with a name of one letter that shorthand too.
_SHORTHANDS = {"v": "v", "h": "help", "k": "experimental-kustomize"}


def parse_join_flags(arguments: Sequence[str]) -> dict[str, str]:
    """The flags by their names. Of a repeated flag the last value counts."""
    flags: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            raise UnknownCommandError(f"kubeadm join {word}: the rehearsal has a model of --config only")
        name, value = _read_long(word) if word.startswith("--") else _read_short(word)
        if name in _NOT_MODELLED:
            raise UnknownCommandError(f"kubeadm join --{name}: the rehearsal has no model of it")
        if value is None and not rest:
            raise KubeadmError(f"flag needs an argument: {_shown_without_value(word)}")
        flags[name] = rest.pop(0) if value is None else value
    return flags


def _read_long(word: str) -> tuple[str, str | None]:
    """`--name=value`, or `--name` with its value in the next word. Underscores in the name mean dashes."""
    given, equals, value = word.removeprefix("--").partition("=")
    if given.startswith("-") or not given:
        raise KubeadmError(f"bad flag syntax: {word}")
    name = given.replace("_", "-")
    if name not in _MODELLED | _NOT_MODELLED:
        raise KubeadmError(f"unknown flag: --{given}")
    return name, value if equals else None


def _read_short(word: str) -> tuple[str, str | None]:
    """`-v5`, `-v=5`, or `-v` with its value in the next word. A shorthand has one letter."""
    letter, value = word[1], word[2:]
    if letter not in _SHORTHANDS:
        raise KubeadmError(f"unknown shorthand flag: '{letter}' in {word}")
    if value.startswith("=") and len(value) > 1:
        value = value[1:]
    return _SHORTHANDS[letter], value or None


def _shown_without_value(word: str) -> str:
    return word if word.startswith("--") else f"'{word[1]}' in {word}"
