"""The settings that a plan records beside what they decide: for the cluster, and the policy for downloads. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

from imagegen.config.artifact_policy import PinnedUrl

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pydantic

    from imagegen.config.model import ImageConfig
    from imagegen.settle.spec import Spec


def stated_settings(spec: Spec) -> dict[str, pydantic.JsonValue]:
    """The settings by their names, as JSON."""
    config = spec.config
    return {
        "kube_proxy": config.kube_proxy,
        "host_names": config.host_names.model_dump(mode="json", include={"longest", "pool"}),
        "artifacts": {
            **config.artifacts.model_dump(
                mode="json", include={"allowed_hosts", "denied_hosts", "quarantine_days", "require_sha256"}
            ),
            "ca": [one.thumbprint for one in spec.authorities],
            "pinned": dict(_pinned(config)),
            "signatures": _signature_policy(spec),
            "signers": dict(_signers(config)),
        },
        "allow_eol": config.allow_eol,
        "set": cast("dict[str, pydantic.JsonValue]", dict(spec.document.sets)),
    }


def _signature_policy(spec: Spec) -> pydantic.JsonValue:
    """Who may sign, and the digests of the files with which signatures are judged. None: nobody has to."""
    policy = spec.config.artifacts.signatures
    if policy is None:
        return None
    files = {
        key.removeprefix("artifacts.signatures."): hashlib.sha256(file.data).hexdigest()
        for key, file in spec.own_files.items()
        if key.startswith("artifacts.signatures.")
    }
    return {**policy.model_dump(mode="json"), "files": files}


def _signers(config: ImageConfig) -> Iterator[tuple[str, pydantic.JsonValue]]:
    """The signers of single overrides."""
    for name, override in config.overrides.items():
        if isinstance(override, PinnedUrl) and override.signer is not None:
            yield name, override.model_dump(mode="json", include={"signer"})["signer"]


def _pinned(config: ImageConfig) -> Iterator[tuple[str, str]]:
    """The digests that the config gives, each with its key."""
    for name, override in config.overrides.items():
        if not isinstance(override, str) and override.sha256:
            yield name, override.sha256
    for at, program in enumerate(config.executables):
        if program.sha256:
            yield f"executables[{at}]", program.sha256
    for at, tarball in enumerate(config.image_tarballs):
        if tarball.sha256:
            yield f"image_tarballs[{at}]", tarball.sha256
    for at, provider in enumerate(config.credential_providers):
        if provider.sha256:
            yield f"credential_providers[{at}]", provider.sha256
