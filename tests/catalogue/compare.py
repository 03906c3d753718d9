"""Compares the catalogue with saved answers of the projects that it describes. For maintainers: `make catalogue`.

A comparison reads one kind of answer and yields a line for each row that differs. Nothing here uses the network: the
answers are files, so that a run can be repeated, and a test has some of its own."""

import argparse
import datetime
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from imagegen.catalog.facts import numbers, table

EPILOG: Final = r"""
How to save the answers, each in one file below DIR:

  DIR/tags/kubernetes.txt       git ls-remote --tags https://github.com/kubernetes/kubernetes
  DIR/tags/cri-tools.txt        the same of kubernetes-sigs/cri-tools; and also
                                projectcalico/calico, flannel-io/flannel, containernetworking/plugins,
                                containerd/containerd, cloudbase/cloudbase-init
  DIR/go/containerd-2.txt       curl https://PROXY/github.com/containerd/containerd/v2/@v/list
  DIR/go/containerd-1.txt       curl https://PROXY/github.com/containerd/containerd/@v/list
  DIR/endoflife/PRODUCT.json    curl https://endoflife.date/api/v1/products/PRODUCT
                                for windows-server, kubernetes and containerd
  DIR/kubelet/1.36.txt          in a clone of Kubernetes, and so for each minor:
                                git grep -hF fs. v1.36.4 -- cmd/kubelet/app/options pkg/kubelet/config \
                                  staging/src/k8s.io/component-base/logs

Tags with their days, which are compared too, come from a clone:

  git -C CLONE for-each-ref --format='%(objectname) %(refname) %(creatordate:short)' refs/tags > DIR/tags/NAME.txt

An answer that is not there is not compared, and the output says so.
"""
# Announcements follow a tag by some days.
_DAYS_AFTER_A_TAG: Final = 7
# One source has the planned day of an end, another that of the last patch, or the last day of the month.
_DAYS_OF_AN_END: Final = 45
_TAG: Final = re.compile(r"refs/tags/v?(\d+(?:\.\d+)+)(?:\s+(\d{4}-\d\d-\d\d))?\s*$", re.MULTILINE)
_LISTED: Final = re.compile(r"^v(\d+(?:\.\d+)+)$", re.MULTILINE)
_FLAG: Final = re.compile(r"\bfs\.(?!Mark)[A-Z]\w*\([^\"\n]*?\"([a-z][a-z0-9-]+)\"")
_WINDOWS: Final = {"2019": "2019", "2022": "2022", "2025": "2025", "annual": "23h2-ac"}

Tags = dict[str, datetime.date | None]
"""The day of each released version, if the answer has it."""


class NoAnswerError(Exception):
    """The folder has no such answer."""


class Answers:
    """The saved answers in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def text(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise NoAnswerError(name) from error

    def tags(self, project: str) -> Tags:
        found = _TAG.findall(self.text(f"tags/{project}.txt"))
        return {version: datetime.date.fromisoformat(day) if day else None for version, day in found}

    def versions(self, module: str) -> list[str]:
        """What the Go proxy lists of a module."""
        return _LISTED.findall(self.text(f"go/{module}.txt"))

    def ends(self, product: str) -> dict[str, dict[str, Any]]:
        """The releases of a product, by name."""
        result = json.loads(self.text(f"endoflife/{product}.json"))["result"]
        return {release["name"]: release for release in result["releases"]}

    def kubelet_flags(self) -> dict[str, set[str]]:
        """The flags that kubelet registers, by minor in ascending order."""
        files = sorted((self._folder / "kubelet").glob("*.txt"), key=lambda file: numbers(file.stem))
        if not files:
            raise NoAnswerError("kubelet/*.txt")
        return {file.stem: set(_FLAG.findall(file.read_text(encoding="utf-8"))) for file in files}


def newest(versions: list[str] | Tags, line: str = "") -> str | None:
    """The newest of the versions of a line, such as 1.36."""
    wanted = numbers(line)
    return max((one for one in versions if numbers(one)[: len(wanted)] == wanted), key=numbers, default=None)


def differs(row: str, has: object, source: object, why: str) -> Iterator[str]:
    """A line, if the source is known and the row says something else."""
    if source is not None and has != source:
        yield f"{row} is {has}, but {why} {source}"


def compare_kubernetes(answers: Answers) -> Iterator[str]:
    """Last patches, days of release, and minors that the catalogue does not have."""
    rows, tags = table("kubernetes")["minors"], answers.tags("kubernetes")
    for minor, row in rows.items():
        where = f"kubernetes.json: {minor}"
        yield from differs(f"{where}: latest_patch", row["latest_patch"], newest(tags, minor), "the newest tag is")
        day = tags.get(f"{minor}.0")
        late = (datetime.date.fromisoformat(row["released"]) - day).days if day else 0
        if not 0 <= late <= _DAYS_AFTER_A_TAG:
            yield f"{where}: released is {row['released']}, but the tag {minor}.0 is of {day}"
    last = max(map(numbers, rows))
    for minor in sorted({".".join(map(str, numbers(tag)[:2])) for tag in tags if numbers(tag)[:2] > last}, key=numbers):
        yield f"kubernetes.json: there is no row for {minor}"


def compare_crictl(answers: Answers) -> Iterator[str]:
    tags = answers.tags("cri-tools")
    for minor, row in table("kubernetes")["minors"].items():
        found = newest(tags, minor)
        if found is None:
            yield f"kubernetes.json: {minor}: crictl is {row['crictl']}, but there is no tag of {minor}"
        yield from differs(f"kubernetes.json: {minor}: crictl", row["crictl"], found, "the newest tag is")


def compare_plugins(answers: Answers) -> Iterator[str]:
    rows = table("cni")["plugins"]
    for plugin, project in (("calico", "calico"), ("flannel", "flannel"), ("win-bridge", "plugins")):
        found = newest(answers.tags(project))
        yield from differs(f"cni.json: {plugin}: newest", rows[plugin]["newest"], found, "the newest tag is")


def compare_containerd(answers: Answers) -> Iterator[str]:
    try:
        known = list(answers.tags("containerd"))
    except NoAnswerError:
        known = [*answers.versions("containerd-1"), *answers.versions("containerd-2")]
    for line, row in table("containerd")["lines"].items():
        found = newest(known, line)
        # The Go proxy has only what somebody asked it for: an older version there says nothing.
        if found and numbers(found) > numbers(row["newest_patch"]):
            yield from differs(f"containerd.json: {line}: newest_patch", row["newest_patch"], found, "there is")


def compare_cloudbase_init(answers: Answers) -> Iterator[str]:
    rows, tags = table("cloudbase-init")["versions"], answers.tags("cloudbase-init")
    first = min(map(numbers, rows))
    for version in sorted((one for one in tags if numbers(one) >= first), key=numbers):
        if version not in rows:
            yield f"cloudbase-init.json: there is no row for {version}"
            continue
        where, day = f"cloudbase-init.json: {version}", tags[version]
        yield from differs(f"{where}: released", rows[version]["released"], str(day) if day else None, "its tag is of")
        yield from differs(f"{where}: newest", rows[version]["newest"], version == newest(tags), "by the tags it is")


def compare_windows_ends(answers: Answers) -> Iterator[str]:
    ends = answers.ends("windows-server")
    for release, row in table("windows")["releases"].items():
        for key, theirs in (("mainstream_end", "eoasFrom"), ("end_of_life", "eolFrom")):
            source = ends.get(_WINDOWS[release], {}).get(theirs)
            yield from differs(f"windows.json: {release}: {key}", row[key], source, "endoflife.date has")


def compare_ends(answers: Answers, product: str, rows: dict[str, Any]) -> Iterator[str]:
    ends = answers.ends(product)
    for name, row in rows.items():
        source = ends.get(name, {}).get("eolFrom")
        ours = datetime.date.fromisoformat(row["end_of_life"])
        if source and abs((datetime.date.fromisoformat(source) - ours).days) > _DAYS_OF_AN_END:
            yield f"{product}.json: {name}: end_of_life is {ours}, but endoflife.date has {source}"


def compare_kubelet_flags(answers: Answers) -> Iterator[str]:
    """Flags that one minor has and the next does not."""
    rows, flags = table("kubelet")["flags"], answers.kubelet_flags()
    for (minor, names), (_, later) in zip(flags.items(), list(flags.items())[1:], strict=False):
        for flag in sorted(names - later):
            last = rows.get(flag, {}).get("last")
            yield from differs(f"kubelet.json: {flag}: last", last, minor, "the last minor that registers it is")


COMPARISONS: Final[dict[str, Callable[[Answers], Iterator[str]]]] = {
    "Kubernetes": compare_kubernetes,
    "crictl": compare_crictl,
    "network plugins": compare_plugins,
    "containerd": compare_containerd,
    "cloudbase-init": compare_cloudbase_init,
    "ends of Windows": compare_windows_ends,
    "ends of Kubernetes": lambda answers: compare_ends(answers, "kubernetes", table("kubernetes")["minors"]),
    "ends of containerd": lambda answers: compare_ends(answers, "containerd", table("containerd")["lines"]),
    "kubelet's flags": compare_kubelet_flags,
}


def compare(folder: Path) -> tuple[list[str], list[str]]:
    """The differences, and the answers that are missing."""
    found: list[str] = []
    missing: list[str] = []
    for name, comparison in COMPARISONS.items():
        try:
            found += comparison(Answers(folder))
        except NoAnswerError as error:
            missing.append(f"{name}: {folder / str(error)} does not exist")
    return found, missing


def main() -> int:
    parser = argparse.ArgumentParser(
        usage="make catalogue ANSWERS=DIR",
        description="Compare the catalogue with saved answers. Exit code 1 if a row differs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder with the saved answers")
    found, missing = compare(parser.parse_args().folder)
    print(*found, sep="\n", end="\n" if found else "")
    print(*(f"not compared: {one}" for one in missing), sep="\n", end="\n" if missing else "", file=sys.stderr)
    print(f"{len(found)} {'difference' if len(found) == 1 else 'differences'}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
