"""One target of a config, ready to be locked and planned."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from imagegen.base.hosts import HostPolicy
from imagegen.fetch.credentials import PrivateHosts, Ways
from imagegen.fetch.lock import Lock
from imagegen.fetch.policy import download_credentials, host_policy
from imagegen.fetch.request import ArtifactRequest
from imagegen.oci.names import ImageRequest
from imagegen.oci.registry import read_credentials, tarball_requests
from imagegen.plan.context import artifact_requests, credential_variables, image_requests
from imagegen.plan.loading import Loaded
from imagegen.providers import RunFacts
from imagegen.providers.provider import Provider, provider
from imagegen.providers.storage import Sign, storages
from imagegen.settle.spec import Spec
from imagegen.steps.evaluate import EvaluatedStep
from imagegen.trust.policy import OwnFiles, SignatureRequest, find_own_files, signature_requests
from imagegen.trust.sources import TrustSources, trust_sources


@dataclasses.dataclass(frozen=True)
class PreparedTarget:
    """A settled target with its evaluated steps."""

    loaded: Loaded
    spec: Spec
    steps: tuple[EvaluatedStep, ...]

    @property
    def name(self) -> str:
        return self.spec.target

    @functools.cached_property
    def images(self) -> Mapping[str, ImageRequest]:
        """The container images that it puts on the machine, by their whole names."""
        return image_requests(self.steps, self.spec)

    def downloads(self, lock: Lock) -> Mapping[str, ArtifactRequest]:
        """Everything that the machine downloads, by name: artifacts, and tarballs of container images."""
        return artifact_requests(self.steps) | tarball_requests(self.images, lock.images)

    @functools.cached_property
    def signatures(self) -> Mapping[str, SignatureRequest]:
        """What must be signed in its artifacts, by their names."""
        return signature_requests(self.spec.config, self.steps)

    @functools.cached_property
    def own_files(self) -> tuple[OwnFiles, ...]:
        """The operator's own files whose signatures are judged."""
        # The first root is that of the shipped steps.
        return find_own_files(self.spec, self.steps, [own.folder for own in self.loaded.contents.step_roots[1:]])

    @property
    def trust_sources(self) -> TrustSources:
        """Where the roots of signatures come from, and what is revoked."""
        return trust_sources(self.spec)

    @property
    def cloud(self) -> Provider:
        return provider(self.spec.provider)

    @property
    def hosts(self) -> HostPolicy:
        """The hosts from which imagegen may download. All targets of a config have the same."""
        authorities = tuple(one.file.data for one in self.spec.authorities)
        return dataclasses.replace(host_policy(self.spec.config), authorities=authorities)

    @property
    def mirror_url(self) -> str | None:
        """The mirror of the config."""
        return self.spec.config.artifacts.mirror

    @property
    def credential_variables(self) -> dict[str, dict[str, str]]:
        """For each registry the names of the environment variables with its credentials."""
        return credential_variables(self.spec.config)

    @property
    def quarantine_days(self) -> int:
        """For how many days a new artifact is refused. All targets of a config have the same."""
        return self.spec.config.artifacts.quarantine_days

    def registry_credentials(self, run: RunFacts) -> dict[str, str]:
        """The credentials of its registries. A variable that is not set is an error with its name."""
        return read_credentials(self.credential_variables, run.environ)

    @property
    def download_credentials(self) -> Ways:
        """For each host with private artifacts the way to sign in."""
        return download_credentials(self.spec.config)

    def private_hosts(self, run: RunFacts) -> PrivateHosts:
        """The hosts whose files need credentials. Its check finds variables that are not set."""
        return find_private_hosts(self.download_credentials, run)


def find_private_hosts(ways: Ways, run: RunFacts) -> PrivateHosts:
    """The hosts whose files need credentials: those of the environment, or those of a cloud."""

    @functools.cache
    def signer(cloud: str) -> Sign:
        return storages()[cloud].signer(run)

    return PrivateHosts(ways, run.environ, lambda cloud, urls, valid_s: signer(cloud)(urls, valid_s))
