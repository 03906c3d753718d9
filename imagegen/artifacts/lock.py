"""The lock: everything that floats, looked up once. Read by resolve; written by `imagegen lock`
beside the user's config.

A digest in a lock was always computed from bytes that were downloaded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import pydantic

from imagegen.errors import ConfigError, Problem
from imagegen.resources.model import Sha256, Strict

if TYPE_CHECKING:
    from pathlib import Path


class LockedArtifact(Strict):
    """One download: the URL that was asked for, and what its bytes were. `members` lists an archive's files."""

    url: str
    sha256: Sha256
    size: int
    members: dict[str, Sha256] | None = None


class LockedBase(Strict):
    """A base image: what was asked for (`request`), what it is everywhere (`identity`), where it lies (`place`)."""

    request: dict[str, str]
    identity: dict[str, str]
    place: dict[str, str]


class Lock(Strict):
    """All that was looked up for one config; `labels` mark a lock that is not production's."""

    lock_version: Literal[1] = 1
    labels: dict[str, str] = {}
    artifacts: dict[str, LockedArtifact] = {}
    base_images: dict[str, LockedBase] = {}


def read_lock(path: Path) -> Lock | None:
    """The lock at this path; None when there is none."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Lock.model_validate_json(text)
    except pydantic.ValidationError as error:
        problems = [
            Problem(str(path), 0, ".".join(str(part) for part in item["loc"]), item["msg"]) for item in error.errors()
        ]
        raise ConfigError(
            f"{path} is not a lock that this version reads", problems=problems, hint="delete it and run `imagegen lock`"
        ) from None


def lock_bytes(lock: Lock) -> bytes:
    """The lock as it is written: sorted, so that two locks of one state are byte-identical."""
    return json.dumps(lock.model_dump(mode="json"), indent=2, sort_keys=True).encode() + b"\n"
