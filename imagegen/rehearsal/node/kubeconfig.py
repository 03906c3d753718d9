"""Kubeconfig files on the model machine: how a program reaches a cluster, and as whom."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING

from imagegen.base.errors import ConfigError
from imagegen.rehearsal.node.yaml_text import read_yaml_map, yaml_text

if TYPE_CHECKING:
    from imagegen.rehearsal.network.messages import Json


@dataclasses.dataclass(frozen=True)
class Access:
    """A cluster's address and authority, and what its holder shows: a token or the file with a client certificate."""

    server: str
    authority: bytes
    token: str = dataclasses.field(default="", repr=False)
    certificate_file: str = ""


def write_kubeconfig(access: Access, *, cluster: str, user: str, context: str) -> bytes:
    """The file as client-go writes it, with one cluster, one user and one context."""
    shown = {"token": access.token} if access.token else {}
    if access.certificate_file:
        shown = {"client-certificate": access.certificate_file, "client-key": access.certificate_file}
    authority = base64.b64encode(access.authority).decode()
    return yaml_text(
        {
            "apiVersion": "v1",
            "clusters": [
                {"cluster": {"certificate-authority-data": authority, "server": access.server}, "name": cluster}
            ],
            "contexts": [{"context": {"cluster": cluster, "user": user}, "name": context}],
            "current-context": context,
            "kind": "Config",
            "users": [{"name": user, "user": shown}],
        }
    ).encode()


def read_kubeconfig(data: bytes, shown_as: str) -> Access:
    """The access of the current context, or of the only cluster where there is no context. ValueError without one."""
    try:
        content = read_yaml_map(data, shown_as)
        context = _named(content, "contexts", content.get("current-context", "")).get("context", {})
        cluster = _named(content, "clusters", context.get("cluster", "")).get("cluster", {})
        user = _named(content, "users", context.get("user", "")).get("user", {})
        return Access(
            cluster["server"],
            base64.b64decode(cluster["certificate-authority-data"], validate=True),
            user.get("token", ""),
            user.get("client-certificate", ""),
        )
    except (ConfigError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{shown_as} is not a kubeconfig: {error}") from error


def _named(content: Json, kind: str, name: str) -> Json:
    found = [item for item in content.get(kind) or [] if item["name"] == name]
    return found[0] if found else {}
