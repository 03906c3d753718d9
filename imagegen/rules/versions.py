"""The rules for versions and Windows releases that the catalogue must contain. Pure."""

from collections.abc import Iterator

from imagegen.catalog.facts import find_row, minor, table
from imagegen.documents.yaml import YamlPath
from imagegen.judging import ERROR, WARNING, Finding, RuleInput, rule

_RELEASE: YamlPath = ("windows", "release")
_KUBERNETES: YamlPath = ("kubernetes", "version")
_CONTAINERD: YamlPath = ("runtime", "containerd", "version")


@rule(
    "kubernetes-known",
    ERROR,
    "The Kubernetes minor must be in the catalogue",
    why="the pause image, crictl, the feature gates and the end of support come from the catalogue",
)
def kubernetes_known(given: RuleInput) -> Iterator[Finding]:
    yield from _unknown(_KUBERNETES, "Kubernetes", given.config.kubernetes.version, "kubernetes", "minors")


@rule(
    "kubernetes-newer-than-catalogue",
    WARNING,
    "The Kubernetes minor should not be newer than the catalogue",
    why="nobody has checked which pause image, crictl and flags this Kubernetes requires",
)
def kubernetes_newer(given: RuleInput) -> Iterator[Finding]:
    yield from _newer(_KUBERNETES, "Kubernetes", given.config.kubernetes.version, "kubernetes", "minors")


@rule(
    "containerd-known",
    ERROR,
    "The containerd line must be in the catalogue",
    why="the config schema, the compatible Kubernetes minors and the end of support come from the catalogue",
)
def containerd_known(given: RuleInput) -> Iterator[Finding]:
    if containerd := given.config.runtime.containerd:
        yield from _unknown(_CONTAINERD, "containerd", containerd.version, "containerd", "lines")


@rule(
    "containerd-newer-than-catalogue",
    WARNING,
    "The containerd line should not be newer than the catalogue",
    why="nobody has checked which config schema and which Kubernetes this containerd requires",
)
def containerd_newer(given: RuleInput) -> Iterator[Finding]:
    if containerd := given.config.runtime.containerd:
        yield from _newer(_CONTAINERD, "containerd", containerd.version, "containerd", "lines")


def _unknown(path: YamlPath, product: str, version: str, name: str, rows: str) -> Iterator[Finding]:
    if find_row(table(name)[rows], version) is None:
        known = list(table(name)[rows])
        # The catalogue has every minor of Kubernetes between the first and the last.
        choices = f"{known[0]} to {known[-1]}" if name == "kubernetes" else ", ".join(known)
        yield Finding(path, f"the catalogue has no {product} {minor(version)}", f"known: {choices}")


def _newer(path: YamlPath, product: str, version: str, name: str, rows: str) -> Iterator[Finding]:
    row = find_row(table(name)[rows], version)
    if row and row.newer:
        yield Finding(
            path,
            f"{product} {minor(version)} is newer than the catalogue, so imagegen uses the facts of {row.minor}",
            f"choose {row.minor}, or read its release notes and test the image",
        )


@rule("cloudbase-init-known", WARNING, "The cloudbase-init version should be in the catalogue")
def cloudbase_init_known(given: RuleInput) -> Iterator[Finding]:
    version, versions = given.config.cloudbase_init.version, table("cloudbase-init")["versions"]
    if version not in versions:
        yield Finding(
            ("cloudbase_init", "version"),
            f"cloudbase-init {version} is not in the catalogue and not tested with imagegen",
            f"known: {', '.join(versions)}",
        )


@rule(
    "windows-release-known",
    ERROR,
    "The Windows release must be in the catalogue",
    why="base images, registry fixes and container images depend on the release",
)
def windows_release_known(given: RuleInput) -> Iterator[Finding]:
    release, windows = given.config.windows.release, table("windows")
    if release not in windows["releases"] and release not in windows["refused"]:
        yield Finding(
            _RELEASE,
            f"unknown Windows release {release!r}",
            f"choose one of {', '.join(windows['releases'])}",
        )


@rule("windows-release-refused", ERROR, "Kubernetes must still support the Windows release")
def windows_release_refused(given: RuleInput) -> Iterator[Finding]:
    windows = table("windows")
    if refused := windows["refused"].get(given.config.windows.release):
        yield Finding(_RELEASE, refused["reason"], f"choose one of {', '.join(windows['releases'])}")


@rule("windows-edition", ERROR, "The Windows release must exist in this edition")
def windows_edition(given: RuleInput) -> Iterator[Finding]:
    windows = given.config.windows
    release = table("windows")["releases"].get(windows.release)
    if release and windows.edition not in release["editions"]:
        yield Finding(
            ("windows", "edition"),
            f"{release['title']} has no edition {windows.edition!r}",
            f"choose {' or '.join(release['editions'])}",
        )
