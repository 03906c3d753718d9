"""What the catalogue knows about Docker's API: which versions an engine answers, and in which kubelet or cri-dockerd
asks. Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from imagegen.catalog.facts import JsonObject, minor, numbers, table

DOCKERSHIM: Final = "kubelet"


@dataclasses.dataclass(frozen=True)
class Engine:
    """The API of a Docker engine."""

    line: str
    """The row that applies: the latest that is not newer than the version."""
    api: str
    """Its newest version."""
    least_api: str
    """Its oldest version, if daemon.json does not lower it."""
    newer: bool
    """Whether its minor is newer than the catalogue: nobody has checked its API."""


@dataclasses.dataclass(frozen=True)
class Client:
    """What asks Docker on a node."""

    name: str
    api: str
    """The version that its requests name."""


def find_engine(version: str) -> Engine | None:
    """The API of a Docker version; None for one that is older than the catalogue, or of a major that it lacks."""
    rows = table("docker")["lines"]
    line = _latest(rows, version)
    newest = max(rows, key=numbers)
    if line is None or (line == newest and numbers(version)[0] != numbers(newest)[0]):
        return None
    row = rows[line]
    # A minor without a row has the API of the row before it, up to the newest minor that the source lists.
    newer = numbers(minor(version)) > numbers(table("docker")["newest"])
    return Engine(line, row["api"], row["least_api"], newer)


def find_client(kubernetes: str, cri_dockerd: str | None) -> Client | None:
    """What asks Docker: cri-dockerd if the config has it, and otherwise kubelet. None if its API is unknown."""
    rows = table("docker")["cri_dockerd" if cri_dockerd else "dockershim"]
    row = _latest(rows, cri_dockerd or kubernetes)
    if row is None:
        return None
    name = f"cri-dockerd {cri_dockerd}" if cri_dockerd else f"{DOCKERSHIM} {minor(kubernetes)}"
    return Client(name, rows[row]["api"])


def least_api(docker: str, client: Client | None) -> str | None:
    """The version to which daemon.json must lower Docker's oldest API; None if it need not."""
    engine = find_engine(docker)
    if engine is None or client is None or not can_lower_api(docker):
        return None
    return client.api if numbers(client.api) < numbers(engine.least_api) else None


def can_lower_api(docker: str) -> bool:
    """Whether this Docker knows min-api-version."""
    return numbers(docker) >= numbers(table("docker")["lowers_api_since"])


def _latest(rows: Mapping[str, JsonObject], version: str) -> str | None:
    """The latest row that is not newer than the version."""
    return max((row for row in rows if numbers(row) <= numbers(version)), key=numbers, default=None)
