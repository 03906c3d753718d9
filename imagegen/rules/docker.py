"""The rules for Docker's version, its edition, and cri-dockerd's. Pure."""

from collections.abc import Iterator

from imagegen.catalog.docker import DOCKERSHIM, Client, Engine, can_lower_api, find_client, find_engine, least_api
from imagegen.catalog.facts import minor, numbers, table
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule

_VERSION: YamlPath = ("runtime", "docker", "version")
_CRI_DOCKERD: YamlPath = ("runtime", "docker", "cri_dockerd")


@rule(
    "docker-known",
    ERROR,
    "The Docker version must be in the catalogue",
    why="which versions of its API it answers comes from the catalogue",
)
def docker_known(given: RuleInput) -> Iterator[Finding]:
    docker, known = given.config.runtime.docker, list(table("docker")["lines"])
    if docker and find_engine(docker.version) is None:
        message = f"the catalogue has no Docker {minor(docker.version)}"
        yield Finding(_VERSION, message, f"known: {known[0]} to {table('docker')['newest']}")


@rule(
    "docker-newer-than-catalogue",
    WARNING,
    "The Docker version should not be newer than the catalogue",
    why="nobody has checked which versions of its API this Docker answers",
)
def docker_newer(given: RuleInput) -> Iterator[Finding]:
    docker = given.config.runtime.docker
    engine = find_engine(docker.version) if docker else None
    if docker and engine and engine.newer:
        yield Finding(
            _VERSION,
            f"Docker {minor(docker.version)} is newer than the catalogue, so imagegen uses the facts of {engine.line}",
            f"choose {engine.line}, or read its release notes and test the image",
        )


@rule(
    "cri-dockerd-known",
    ERROR,
    "The cri-dockerd version must be in the catalogue, or have its own URL",
    why="which version of Docker's API it speaks, and the name of its archive, come from the catalogue",
)
def cri_dockerd_known(given: RuleInput) -> Iterator[Finding]:
    docker, facts = given.config.runtime.docker, table("docker")
    version = docker.cri_dockerd if docker else None
    oldest = min(facts["cri_dockerd"], key=numbers)
    if version and numbers(version) < numbers(oldest):
        yield Finding(_CRI_DOCKERD, f"the catalogue has no cri-dockerd {version}", f"choose {oldest} or later")
    elif (
        version
        and numbers(version) < numbers(facts["archive_since"])
        and "cri_dockerd_url" not in given.config.overrides
    ):
        yield Finding(
            _CRI_DOCKERD,
            f"the archive of cri-dockerd {version} for Windows has another name, which the catalogue does not confirm",
            f"choose {facts['archive_since']} or later, or write overrides.cri_dockerd_url",
        )


@rule("mirantis-needs-url", ERROR, "The edition of Mirantis must have its own URL")
def mirantis_needs_url(given: RuleInput) -> Iterator[Finding]:
    docker = given.config.runtime.docker
    if docker and docker.edition == "mirantis" and "docker_url" not in given.config.overrides:
        yield Finding(
            ("runtime", "docker", "edition"),
            "Mirantis publishes only a script that installs what it finds, and no address of one version",
            "write overrides.docker_url: the https URL of a zip with docker/docker.exe and docker/dockerd.exe",
        )


@rule(
    "docker-api",
    ERROR,
    "Docker must answer the version of its API in which kubelet or cri-dockerd asks",
    why="neither of them negotiates the version",
)
def docker_api(given: RuleInput) -> Iterator[Finding]:
    docker, (engine, client) = given.config.runtime.docker, _sides(given)
    if not docker or not engine or not client:
        return
    if numbers(client.api) > numbers(engine.api):
        yield Finding(
            _VERSION,
            f"{client.name} speaks version {client.api} of Docker's API, and Docker {minor(docker.version)} only up to "
            f"{engine.api}",
            f"choose Docker {_first_with(client.api)} or later",
        )
    elif numbers(client.api) < numbers(engine.least_api) and not can_lower_api(docker.version):
        yield Finding(
            _VERSION,
            f"{client.name} speaks version {client.api} of Docker's API, and Docker {minor(docker.version)} only from "
            f"{engine.least_api} on",
            "choose an older Docker",
        )


@rule(
    "docker-api-lowered",
    WARNING,
    "Docker should answer the version of its API in which kubelet or cri-dockerd asks without a setting",
    why="Docker supports older versions by best effort only",
)
def docker_api_lowered(given: RuleInput) -> Iterator[Finding]:
    docker, (engine, client) = given.config.runtime.docker, _sides(given)
    least = least_api(docker.version, client) if docker else None
    if docker and engine and client and least:
        lines = table("docker")["lines"]
        fitting = [
            line
            for line, row in lines.items()
            if numbers(row["least_api"]) <= numbers(least) <= numbers(row["api"])
            and numbers(line) < numbers(engine.line)
        ]
        name, asked = minor(docker.version), f"{client.name} speaks version {client.api} of Docker's API"
        yield Finding(
            _VERSION,
            f"{asked}, which Docker {name} refuses by default: imagegen sets min-api-version to {least}",
            f"choose Docker {fitting[-1]}" if client.name.startswith(DOCKERSHIM) else "choose a later cri_dockerd",
        )


@rule(
    "docker-sandbox-image",
    WARNING,
    "User data should name the sandbox image of Docker nodes up to Kubernetes 1.23",
    why="kubeadm writes its own image for kubelet, and kubelet takes the last of two values",
)
def docker_sandbox_image(given: RuleInput) -> Iterator[Finding]:
    docker, version = given.config.runtime.docker, given.config.kubernetes.version
    row = table("kubernetes")["minors"].get(minor(version))
    if docker and not docker.cri_dockerd and row and row["dockershim"]:
        image = given.config.kubernetes.pause_image or row["pause"]
        yield Finding(
            ("runtime", "docker"),
            f"kubeadm {minor(version)} gives kubelet its own sandbox image, which may not run on this Windows release",
            f'write pod-infra-container-image: "{image}" into nodeRegistration.kubeletExtraArgs of the user data',
        )


def _sides(given: RuleInput) -> tuple[Engine | None, Client | None]:
    docker = given.config.runtime.docker
    if docker is None:
        return None, None
    return find_engine(docker.version), find_client(given.config.kubernetes.version, docker.cri_dockerd)


def _first_with(api: str) -> str:
    """The first line that answers this version."""
    return next(str(line) for line, row in table("docker")["lines"].items() if numbers(row["api"]) >= numbers(api))
