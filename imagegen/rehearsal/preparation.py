"""Prepares the rehearsal of a target: rejects unsupported settings, and makes the setup of its sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen import pipeline
from imagegen.base.errors import RefusedError
from imagegen.config.load import leading_path
from imagegen.config.yaml import dotted
from imagegen.plan import loading
from imagegen.rehearsal.artifacts import find_unrecorded, make_artifacts, make_digests
from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.network.image_mirror import make_image_mirror
from imagegen.rehearsal.sandbox import SandboxSetup
from imagegen.rehearsal.signing.stand_in_signer import StandInSigner, find_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.base.errors import Problem
    from imagegen.config.yaml import YamlPath
    from imagegen.fetch.credentials import Ways
    from imagegen.rehearsal.network.cloud import CloudOptions


def reject_unsupported(loaded: loading.Loaded, target: str) -> None:
    """Reject a config that the stand-ins do not support, before one of them fails with another message."""
    if problems := [
        *_find_unsupported_settings(loaded, target),
        *_find_unsupported_regions(loaded, target),
        *_find_pinned_overrides(loaded, target),
        *_find_unmatched_signers(loaded, target),
        *_find_pinned_images(loaded),
        *find_unrecorded(pipeline.prepare_target(loaded, target).steps),
    ]:
        raise RefusedError(f"{loaded.file} cannot be rehearsed as it is", problems=problems)


def _find_unsupported_settings(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    spec = loaded.specs[target]
    find = stand_in(spec.provider).find_unsupported
    for setting in find(spec.settings) if find is not None else ():
        hint = f"--set 'targets.{target}.{'.'.join(map(str, setting.path))}={setting.supported_value}'"
        yield loaded.document.problem(("targets", target, *setting.path), setting.message, hint)


def _find_unsupported_regions(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    spec = loaded.specs[target]
    cloud = stand_in(spec.provider)
    for path, region in cloud.regions(spec.settings).items():
        if region not in cloud.known_regions:
            message, known = f'a rehearsal does not support the region "{region}"', sorted(cloud.known_regions)
            yield loaded.document.problem(("targets", target, *path), message, f"with --set, one of {', '.join(known)}")


def _find_pinned_overrides(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    """Artifacts with a sha256: a rehearsal serves a stand-in for every artifact, which has other bytes."""
    policy = " --set artifacts.require_sha256=false" if loaded.config.artifacts.require_sha256 else ""
    requests = [request for step in pipeline.prepare_target(loaded, target).steps for request in step.requests.values()]
    for key, url in {request.key: request.url for request in requests if request.sha256}.items():
        path = leading_path(key)[0][:2]
        message = "a rehearsal serves a stand-in for this artifact, which cannot have the sha256 of the config"
        override = loaded.config.overrides.get(str(path[1]))
        has_signer = override is not None and not isinstance(override, str) and override.signer is not None
        is_short = path[0] == "overrides" and not has_signer
        without = f"{key}={url}" if is_short else f"'{dotted(path)}.sha256=null'"
        yield loaded.document.problem(path, message, f"rehearse without the sha256: --set {without}{policy}")


def _find_unmatched_signers(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    """Signers that no throw-away certificate can match."""
    unmatched: dict[str, str] = {}
    for request in pipeline.prepare_target(loaded, target).signatures.values():
        if find_names(request) is None:
            unmatched.setdefault(request.key, request.allowed)
    for key, allowed in sorted(unmatched.items()):
        path: YamlPath = tuple(key.split("."))
        message = f"a rehearsal signs its stand-ins with throw-away certificates, none of which can match {allowed}"
        anybody = "null" if path[0] == "overrides" else "[]"
        yield loaded.document.problem(path, message, f"rehearse with any signer: --set '{key}={anybody}'")


def _find_pinned_images(loaded: loading.Loaded) -> Iterator[Problem]:
    """Container images with a digest: a rehearsal serves a stand-in for every image, which has another one."""
    config = loaded.config
    listed: dict[YamlPath, str] = {
        **{("windows", "container_images", at): name for at, name in enumerate(config.windows.container_images)},
        **{("images", at): name for at, name in enumerate(config.images)},
        **({("kubernetes", "pause_image"): config.kubernetes.pause_image} if config.kubernetes.pause_image else {}),
    }
    if not config.images and not config.windows.container_images:
        return
    for path, name in listed.items():
        if "@" in name:
            message = "a rehearsal serves a stand-in for this image, which cannot have the digest of the config"
            yield loaded.document.problem(path, message, "rehearse with a tag in place of the digest")


def prepare_setup(loaded: loading.Loaded, target: str, folder: Path) -> SandboxSetup:
    """Make the setup of the sandbox. The build writes its trees below `folder`."""
    config = loaded.config

    def tree() -> Path:
        return next(iter(sorted((folder / config.name).glob("*/tree"))), folder / "tree")

    spec = loaded.specs[target]
    cloud = stand_in(spec.provider)
    prepared = pipeline.prepare_target(loaded, target)
    mirrored = [image.name for image in prepared.images.values() if image.mirror]
    images = {name: image for name, image in prepared.images.items() if not image.mirror}
    copies = make_image_mirror(str(prepared.mirror_url), mirrored) if mirrored else {}
    signer = StandInSigner(prepared.signatures) if prepared.signatures else None
    artifacts = make_artifacts(prepared.steps, signer.sign if signer else None)
    crls = prepared.trust_sources.crl_urls if signer else ()
    return SandboxSetup(
        cloud=spec.provider,
        release=config.windows.release,
        artifacts={**artifacts, **copies, **{url: signer.revocation_lists for url in crls if signer}},
        digests=make_digests(prepared.steps, artifacts),
        tree=tree,
        cloud_options=cloud.options(spec.settings, folder),
        user_data=cloud.user_data,
        proxy=config.proxy.https if config.proxy else None,
        images=[*images],
        mirrors=[url for image in images.values() for url in image.mirrors],
        accounts=spec.settings.restricted_address_users,
        registry_credentials=prepared.credential_variables,
        signing_roots=signer.roots if signer else b"",
        reaches_windows_update=config.windows.updates is not None,
        download_credentials=prepared.download_credentials,
        accounts_beside=_accounts_beside(spec.provider, prepared.download_credentials),
    )


def _accounts_beside(target: str, ways: Ways) -> dict[str, CloudOptions]:
    """The initial states of the other clouds to which downloads sign in."""
    found = {}
    for name in dict.fromkeys(way["sign_in"] for way in ways.values() if way.get("sign_in", target) != target):
        options = stand_in(name).account_options
        if options is None:
            raise RefusedError(
                f"a rehearsal cannot sign in to {name}", hint="leave sign_in out of artifacts.credentials"
            )
        found[name] = options()
    return found
