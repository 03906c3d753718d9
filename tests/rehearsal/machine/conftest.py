"""A bench: a stock machine, bundles made for the test, and a web that holds their artifacts."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.machine import Machine, Outcome, run_entry, stock_windows
from imagegen.steps.kinds import KINDS, PLANNED_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ZIP = r"C:\Windows\Temp\imagegen-bundle.zip"
SCRIPTS = ("engine.psm1", "common.psm1", "download.psm1", "seal.psm1")
Fields = dict[str, Any]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


class Bench:
    """One machine, one plan at a time."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.web: dict[str, bytes] = {}
        self.demanded: dict[str, str] = {}
        """The header Authorization that a URL demands."""
        self.fetched: list[str] = []
        self.proxy: dict[str, Any] | None = None
        self.proxies: dict[str, list[str]] = {}
        """What each proxy there is was asked for."""
        self.artifacts: dict[str, dict[str, Any]] = {}
        self.signatures: dict[str, dict[str, Any] | None] = {}
        self.texts: dict[str, bytes] = {}
        self.contents: dict[str, bytes] = {}
        self.plan: dict[str, Any] = {}

    def artifact(self, name: str, data: bytes) -> str:
        url = f"https://artifacts.example/{name}?sig=secret"
        self.web[url] = data
        self.artifacts[name] = {"url": url, "sha256": sha(data), "size": len(data)}
        return name

    @staticmethod
    def value(name: str, data: int = 1) -> tuple[str, Fields]:
        return "registry", {"key": r"HKLM:\SOFTWARE\Test", "name": name, "type": "DWord", "data": data}

    @staticmethod
    def folder(path: str) -> tuple[str, Fields]:
        return "directory", {"path": path}

    def binary(self, name: str, data: bytes = b"MZ") -> tuple[str, Fields]:
        """A file in C:\\k that comes from an artifact of its name."""
        fields = {"path": rf"C:\k\{name}.exe", "sha256": sha(data), "source": None, "artifact": name}
        self.artifact(name, data)
        return "file", fields

    def file(self, path: str, data: bytes) -> Fields:
        """The fields of a file of the bundle."""
        return {
            "path": path,
            "sha256": sha(data),
            "source": self.text(path.rpartition("\\")[2], data),
            "artifact": None,
        }

    @staticmethod
    def statuses(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return [(event["event"], event.get("status", "")) for event in events]

    def text(self, name: str, data: bytes) -> str:
        self.texts[f"files/step/{name}"] = data
        return f"files/step/{name}"

    def bundle(self, phases: Mapping[str, Sequence[tuple[str, Fields]]], *, restarts: Sequence[str] = ()) -> None:
        """A bundle of these phases, each with one step of its name, uploaded."""
        self.pack(
            [
                {"name": name, "restart": name in restarts, "steps": [self._step(f"{name}-step", resources)]}
                for name, resources in phases.items()
            ]
        )

    def pack(self, phases: list[dict[str, Any]]) -> None:
        """A bundle of phases as plan.json has them, but for their times, uploaded."""
        steps = [step for phase in phases for step in phase["steps"]]
        kinds = {resource["kind"] for step in steps for resource in step["resources"]}
        scripts = {name: name.encode() for name in (*SCRIPTS, *(f"kinds/{kind}.ps1" for kind in kinds))}
        self.contents = {**scripts, **self.texts}
        self.plan = {
            "plan_version": 1,
            "name": "test",
            "target": "aws",
            "windows": {"release": "2022", "build": 20348},
            "phases": [{**phase, "timeout_s": 600} for phase in phases],
            "artifacts": self.artifacts,
            "files": {name: sha(data) for name, data in self.contents.items()},
            "proxy": self.proxy,
            "signatures": self.signatures,
        }
        self.upload()

    @staticmethod
    def _step(name: str, resources: Sequence[tuple[str, Fields]]) -> dict[str, Any]:
        entries = []
        for kind, fields in resources:
            resource = KINDS[kind].model_validate(fields)
            planned = {"kind": kind, "fields": fields}
            if kind not in PLANNED_KINDS:
                planned = {"kind": resource.planned().kind, "fields": resource.planned().fields()}
            entries.append({"id": f"{name}/{kind}:{resource.label}", **planned, "until": None, "effects": []})
        return {"name": name, "summary": "for the test", "timeout_s": 60, "repeated": False, "resources": entries}

    def upload(self) -> None:
        """Pins and uploads the plan and the contents as they are now."""
        plan = json.dumps(self.plan, sort_keys=True, separators=(",", ":")).encode()
        data = zipped({"plan.json": plan, **self.contents})
        self.machine.files.write(ZIP, data)
        self.pins = {"-BundleSha256": sha(data), "-PlanSha256": sha(plan)}

    def arguments(self, phase: str, *extra: str) -> list[str]:
        pins = [word for pin in self.pins.items() for word in pin]
        return ["-Phase", phase, "-Bundle", ZIP, *pins, *extra]

    def run(self, phase: str, *extra: str) -> Outcome:
        return run_entry(self.machine, self.arguments(phase, *extra), self.fetch)

    def fetch(self, url: str, authorization: str, proxy: str | None) -> bytes:
        self.fetched.append(url)
        if authorization != self.demanded.get(url, ""):
            raise PermissionError("HTTP 401")
        if proxy is not None:
            if proxy not in self.proxies:
                raise ConnectionRefusedError(f"nothing listens at {proxy}")
            self.proxies[proxy].append(url)
        if url not in self.web:
            raise FileNotFoundError("HTTP 404")
        return self.web[url]

    def done(self, phase: str, *extra: str) -> list[dict[str, Any]]:
        """The events of a run that must succeed."""
        outcome = self.run(phase, *extra)
        assert outcome.exit_code == 0, outcome.output
        return self.events(outcome)

    @staticmethod
    def events(outcome: Outcome, event: str = "") -> list[dict[str, Any]]:
        lines = [line for line in outcome.output.splitlines() if line.startswith("imagegen: ")]
        events = [json.loads(line.removeprefix("imagegen: ")) for line in lines]
        return [one for one in events if event in ("", one["event"])]

    def kept(self, name: str) -> Any:  # noqa: ANN401 - JSON of any shape
        return json.loads(self.machine.files.read(rf"C:\ProgramData\imagegen\{name}"))

    def snapshot(self) -> dict[str, Any]:
        """All that the machine is, but for the engine's own folder and the upload."""
        machine = self.machine
        files = {path: machine.files.read(path) for path in machine.files.below("C:") if "imagegen" not in path}
        return {"files": files, "registry": repr(machine.registry.__dict__), "running": [*self.running()]}

    def running(self) -> list[str]:
        return [name for name in self.machine.services.names() if self.machine.services.is_running(name)]


class EndedError(BaseException):
    """The engine's process is gone: nothing of it runs on."""


def run_and_end(bench: Bench, phase: str, owner: object, name: str, argument: str) -> None:
    """A run whose process is gone as soon as Windows has done this."""
    real = getattr(owner, name)

    def act(*arguments: object) -> None:
        real(*arguments)
        if arguments[0] == argument:
            raise EndedError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, act)
        with pytest.raises(EndedError):
            bench.run(phase)


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A stock machine to copy: to set one up takes longer than most tests."""
    return stock_windows(tmp_path_factory.mktemp("stock"), release="2022", cloud="aws")


@pytest.fixture
def bench(tmp_path: Path, stock: Machine) -> Bench:
    return Bench(stock.copy(tmp_path))
