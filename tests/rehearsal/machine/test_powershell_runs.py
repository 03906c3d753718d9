"""The module that stands for the engine says what real PowerShell said: same resources, order, statuses, facts, exit
codes and report.

tests/data/powershell-runs has twelve bundles of this project, carried out by PowerShell 7.6.5 for Windows on a
Windows-like machine: their resources, and what the engine said of them. Files, archives and packages are made again
here, because the runs have only their digests."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

import pytest

from imagegen.rehearsal.machine.engine import CHECK_MARK, Outcome, run_entry
from imagegen.rehearsal.machine.msi import MsiService, make_msi
from imagegen.rehearsal.machine.stock import stock_windows
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

RUNS: Final = sorted((REPOSITORY / "tests/data/powershell-runs").glob("*.json"))
ZIP: Final = r"C:\Windows\Temp\imagegen-bundle.zip"
ENGINE: Final = ("engine.psm1", "common.psm1", "download.psm1")
# The runs are older than effects. Without them, the script that adds sshd makes nothing on the model machine.
SERVICE: Final = dict.fromkeys(("display_name", "command", "start", "state", "depends_on", "recovery"))
EFFECTS: Final = {
    "ssh/command:ssh-server": [
        {"kind": "file", "label": "file", "fields": {"path": r"C:\Windows\System32\OpenSSH\sshd.exe", "sha256": None}},
        {"kind": "service", "label": "service", "fields": {"name": "sshd", **SERVICE}},
    ]
}
# The facts that differ, by resource, and why.
DIFFERENT_FACTS: Final = {
    ("system/service:W32Time", "command"): "the services of the runs' Windows had one program of its own",
    ("cloudbase-init/service:cloudbase-init", "command"): "the package is made again, without its services' commands",
    ("cloudbase-init/package:cloudbase-init", "version"): "the package is made again, with the version of the plan",
    ("kubernetes/service:kubelet", "state"): "the runs' kubelet had not joined, and ended after a restart",
    ("ssh/service:sshd", "display_name"): "an effect says only that there is a service",
    ("ssh/service:sshd", "command"): "an effect says only that there is a service",
    ("scripts/script:02-harden.ps1", "exit_code"): "no script is run: the first good exit code is taken",
}
# Since the runs, folders say why they are open, and members of archives have sizes. All files are made again.
NEWER_FACTS: Final = ("open", "size")
# A command is taken as run, although nothing needed to be done.
NOTHING_TO_DO: Final = ("docker/command:stop-other-docker", "system/command:hypervisor")
# In this phase the script above asked for a restart.
RESTARTED: Final = ("big-aws", "phase-2")


class Run:
    """One of the bundles, with made bytes in place of those that are not kept."""

    def __init__(self, path: Path) -> None:
        data = json.loads(path.read_text())
        self.name = path.stem
        self.digests: dict[str, bytes] = {}
        """The made bytes, by the digest that the run has."""
        self.web: dict[str, bytes] = {}
        self.steps = [step for phase in data["phases"] for step in phase["steps"]]
        self.resources = [resource for step in self.steps for resource in step["resources"]]
        self.contents = dict(self._sources())
        self.artifacts = {name: self._artifact(name) for name in data["artifacts"]}
        self.said = self._made(data)
        self.plan = json.dumps(self._plan(), sort_keys=True, separators=(",", ":")).encode()

    def _bytes(self, digest: str) -> bytes:
        # A comment in what programs read when they start.
        return self.digests.setdefault(digest, f"# the bytes of {digest}".encode())

    def _sources(self) -> Iterator[tuple[str, bytes]]:
        yield from ((name, name.encode()) for name in ENGINE)
        for resource in self.resources:
            yield f"kinds/{resource['kind']}.ps1", resource["kind"].encode()
            if resource["fields"].get("source"):
                source, digest = resource["fields"]["source"], resource["fields"]["sha256"]
                if source.endswith((".json", "/config")):
                    self.digests[digest] = b"{}"
                yield source, self._bytes(digest)

    def _artifact(self, name: str) -> dict[str, object]:
        users = [resource for resource in self.resources if resource["fields"].get("artifact") == name]
        members: dict[str, bytes] = {}
        data = b""
        for fields, kind in ((one["fields"], one["kind"]) for one in users):
            if kind == "archive":
                above = "above/" * fields["strip"]
                found = {above + one["path"].replace("\\", "/"): one["sha256"] for one in fields["members"]}
                members |= {path: self._bytes(sha256) for path, sha256 in found.items()}
            elif kind == "package":
                services = [
                    MsiService(name=one, display_name=one, command=fields["files"][0]) for one in fields["services"]
                ]
                files = dict.fromkeys(fields["files"], b"MZ")
                above = fields["files"][-1].partition("\\conf")[0]
                folders = [f"{above}\\{one}" for one in ("conf", "log")]
                data = make_msi(fields["product"], fields["version"], files, services, folders)
            elif fields.get("member"):
                members[fields["member"]] = self._bytes(fields["sha256"])
            else:
                data = self._bytes(fields["sha256"]) if kind == "file" else b"a tarball"
        if members:
            data = zipped(members)
        url = f"https://artifacts.example/{name}"
        self.web[url] = data
        return {"url": url, "sha256": sha(data), "size": len(data)}

    def _made(self, data: dict[str, Any]) -> dict[str, Any]:
        """The same with the digests of the made bytes."""
        text = json.dumps(data)
        for digest, made in self.digests.items():
            text = text.replace(digest, sha(made))
        found: dict[str, Any] = json.loads(text)
        return found

    def _plan(self) -> dict[str, object]:
        said = self.said
        keys = ("id", "kind", "fields", "until")
        return {
            "plan_version": 1,
            **{name: said[name] for name in ("name", "target", "windows", "proxy")},
            "phases": [
                {
                    **{"name": phase["name"], "restart": phase["restart"], "timeout_s": 600},
                    "steps": [
                        {
                            **{"name": step["name"], "repeated": step["repeated"], "summary": "", "timeout_s": 60},
                            "resources": [
                                {**{key: one[key] for key in keys}, "effects": EFFECTS.get(one["id"], [])}
                                for one in step["resources"]
                            ],
                        }
                        for step in phase["steps"]
                    ],
                }
                for phase in said["phases"]
            ],
            "artifacts": self.artifacts,
            "files": {name: sha(data) for name, data in self.contents.items()},
            "signatures": {},
        }


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


class Carried:
    """The run on the model machine, phase by phase."""

    def __init__(self, run: Run, root: Path) -> None:
        self.run = run
        said = run.said
        self.machine: Machine = stock_windows(root, release=said["windows"]["release"], cloud=said["target"])
        self.outcomes: dict[str, Outcome] = {}
        for phase in said["phases"]:
            self.outcomes[phase["name"]] = self._entry("-Phase", phase["name"])
            if phase["restart"]:
                self.machine.restart()
        report = json.loads(self.machine.files.read(r"C:\ProgramData\imagegen\report.json"))
        self.report: dict[str, Any] = report
        self.checked = self._entry("-Phase", "all", "-Check")

    def _entry(self, *arguments: str) -> Outcome:
        data = zipped({"plan.json": self.run.plan, **self.run.contents})
        self.machine.files.write(ZIP, data)
        pins = ("-Bundle", ZIP, "-BundleSha256", sha(data), "-PlanSha256", sha(self.run.plan))
        first, phase, *rest = arguments
        outcome = run_entry(self.machine, [first, phase, *pins, *rest], lambda url, *_: self.run.web[url])
        assert outcome.exit_code in (0, 3010), outcome.output
        return outcome


@pytest.fixture(scope="module", params=RUNS, ids=lambda path: path.stem)
def carried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Carried:
    return Carried(Run(request.param), tmp_path_factory.mktemp("machine"))


def events_of(outcome: Outcome) -> list[str]:
    """The events in the short form of the data."""
    found = []
    for line in outcome.output.splitlines():
        if not line.startswith("imagegen: "):
            continue
        event = json.loads(line.removeprefix("imagegen: "))
        match event["event"]:
            case "phase":
                counts = f"{event['resources']} {event['changed']} {str(event['restart']).lower()}"
                found.append(f"phase {event['status']} {counts}")
            case "resource":
                found.append(f"{event['status']} {event['id']}")
            case "artifact":
                found.append(f"artifact {event['name']} {event['status']}")
            case _:
                found.append(f"{event['event']} {event['path']}")
    return found


def comparable(events: list[str]) -> list[str]:
    """The events without differences that are explained above. Downloads end in any order."""
    ready = sorted(event for event in events if event.endswith(" ready"))
    names = [ready.pop(0) if event.endswith(" ready") else event for event in events]
    # The last event of a phase counts the commands, too.
    return [
        "phase finished"
        if event.startswith("phase finished")
        else event.removeprefix("ok ").removeprefix("changed ")
        if event.endswith(NOTHING_TO_DO)
        else event
        for event in names
    ]


def counts(events: list[str]) -> tuple[int, str]:
    """The number of changes of a phase without those commands, and whether it needs a restart."""
    (end,) = [event for event in events if event.startswith("phase finished")]
    _, _, _, changed, restart = end.split()
    return int(changed) - sum(
        event.startswith("changed ") and event.endswith(NOTHING_TO_DO) for event in events
    ), restart


def test_phases_say_the_same(carried: Carried) -> None:
    for phase in carried.run.said["phases"]:
        outcome = carried.outcomes[phase["name"]]
        found = events_of(outcome)
        assert comparable(found) == comparable(phase["events"])
        if (carried.run.name, phase["name"]) != RESTARTED:
            assert counts(found) == counts(phase["events"])
            assert outcome.exit_code == carried.run.said["exit_codes"][phase["name"]]


def test_report_has_the_same_facts(carried: Carried) -> None:
    expected = [one for phase in carried.run.said["phases"] for step in phase["steps"] for one in step["resources"]]
    assert [one["id"] for one in carried.report["resources"]] == [one["id"] for one in expected]
    for found, said in zip(carried.report["resources"], expected, strict=True):
        assert found["status"] == said["status"] or found["id"] in NOTHING_TO_DO
        assert plain(found) == plain(said), found["id"]
    assert carried.report["machine"] == carried.run.said["machine"]
    phases = [(phase["name"], phase["status"]) for phase in carried.report["phases"]]
    assert phases == [(phase["name"], phase["reported"]["status"]) for phase in carried.run.said["phases"]]


def plain(resource: dict[str, Any]) -> dict[str, object]:
    """The facts of a resource without those that are explained above."""
    facts = {
        name: value
        for name, value in (resource["facts"] or {}).items()
        if name not in NEWER_FACTS and (resource["id"], name) not in DIFFERENT_FACTS
    }
    if resource["kind"] == "archive":
        members = facts["members"].items()
        facts["members"] = {name: one if isinstance(one, str) else one["sha256"] for name, one in members}
    return facts


def test_check_says_the_same(carried: Carried) -> None:
    said = carried.run.said.get("check")
    assert said is None or events_of(carried.checked) == said
    assert carried.checked.output.splitlines()[-1].startswith(CHECK_MARK)
