"""Renders the cases of tests/windows/cases for run.py: bundles, digests and command lines by imagegen's own code.

Only this module of the cases imports imagegen.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import ruamel.yaml
import trustme

from imagegen.catalog.facts import table
from imagegen.inspect.versions import read_properties as read_properties
from imagegen.plan import model
from imagegen.providers.settings import TargetSettings
from imagegen.render import BUNDLE_PATH, START_PATH, bundle_zip, guest_plan, guest_values
from imagegen.steps.effects import EFFECTS, plan_effect
from imagegen.steps.kinds import KINDS
from tests.windows.msi import make_msi

REPOSITORY: Final = Path(__file__).parents[2]
CASES: Final = Path(__file__).parent / "cases"
PORTS: Final = (47443, 47480)
NAMES: Final = ("artifacts.imagegen.test", "other.imagegen.test")
PLACE: Final = r"C:\imagegen-case"
"""The folder of the cases on the machine, for which `CASE` stands in a case."""
_ROOT_FILE: Final = r"C:\Windows\Temp\case-root.cer"
_HOSTS: Final = r"C:\Windows\System32\drivers\etc\hosts"
_SET_UP: Final = [
    f"certutil -f -addstore Root {_ROOT_FILE}",
    f"findstr {NAMES[0]} {_HOSTS} >nul || (echo.&echo ADDRESS {' '.join(NAMES)})>>{_HOSTS}",
]
# What every case may have left. None of these fails where there is nothing.
_CLEAN: Final = [
    r"if exist C:\ProgramData\imagegen rmdir /s /q C:\ProgramData\imagegen",
    f"if exist {PLACE} icacls {PLACE} /reset /t /c /q & if exist {PLACE} rmdir /s /q {PLACE}",
    r"del /f /q C:\Windows\Temp\imagegen-*",
    *(f"reg delete HKLM\\SOFTWARE\\{key} /f" for key in ("imagegen-restart", "imagegen-updates", "imagegen-case")),
]
_POWERSHELL: Final = "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File"
_EXPECTED: Final = ("says", "spoiled", "interrupted")
STANDARD: Final = ("before", "again", "spoiled", "interrupted")
BYTES: Final = frozenset(
    {"start", "download", "common"}
    | {kind for kind, form in KINDS.items() if {"artifact", "sha256"} & form.model_fields.keys()}
)
"""The kinds and scripts of the guest that compare bytes with a digest."""
# Before Windows' own folder: a module here takes the place of one of Windows.
_MODULES: Final = r"C:\Program Files\WindowsPowerShell\Modules"
Given = dict[str, Any]


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - any content of YAML
    return ruamel.yaml.YAML(typ="safe").load(path.read_text("utf-8"))


def read_cases() -> dict[str, Given]:
    """Each file of cases by its name."""
    return {path.stem: read_yaml(path) for path in sorted(CASES.glob("*.yml"))}


@functools.cache
def _read(path: str) -> bytes:
    return (REPOSITORY / path).read_bytes()


def each_case(given: Given) -> Iterator[tuple[str, Given]]:
    """The cases of a file, each with what it inherits."""
    common = {key: value for key, value in given.items() if key != "cases"}
    for name, own in given["cases"].items():
        yield name, {**common, **(own or {})}


class Renderer:
    """Writes cases to a folder, each file once."""

    def __init__(self, folder: Path, stand_in: Callable[[], bytes]) -> None:
        self._folder, self._stand_in = folder, stand_in
        self._stored: set[str] = set()
        self.builds = {str(row["build"]): name for name, row in table("windows")["releases"].items()}
        for name in ("cases", "files", "tls"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def store(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._stored:
            self._stored.add(digest)
            (self._folder / "files" / digest).write_bytes(data)
        return digest

    def content(self, given: object) -> bytes:
        """The bytes that a case names: a text, a file of the repository, an archive, a package, or the stand-in."""
        if isinstance(given, str):
            return str(expand(given)).encode("utf-8")
        form, value = next(iter(cast(dict[str, Any], given).items()))
        if form == "repo":
            return _read(str(value))
        if form == "zip":
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, text in value.items():
                    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), self.content(text))
            return buffer.getvalue()
        if form == "msi":
            return make_msi(value["product"], value["version"], [tuple(one) for one in value["values"]])
        if form == "repeat":
            return str(expand(value["text"])).encode() * int(value["times"])
        assert form == "stand_in", form
        return self._stand_in()

    def render(self, file: str, name: str, given: Given) -> Given:
        """One case as run.py reads it."""
        unknown = [key for key in given if key not in KNOWN_KEYS]
        unknown += [line for line in given.get("clean", []) if not isinstance(line, str)]
        assert not unknown, f"{file}: {name}: {unknown}"
        case = _Case(self, given)
        return {
            "case_version": 1,
            "id": f"{file}/{name}",
            "subject": given["subject"],
            "restart": bool(given.get("restart")),
            "timeout_s": given.get("timeout_s", 900),
            "builds": [*self.builds],
            "serves": case.serves(),
            "clean": [*map(expand, given.get("clean", [])), *_clean_modules(given), *_CLEAN],
            "steps": [*case.steps(given.get("case", name))],
        }

    def render_all(self) -> int:
        count = 0
        for file, given in read_cases().items():
            for name, case in each_case(given):
                text = json.dumps(self.render(file, name, case), indent=1)
                (self._folder / "cases" / f"{file}.{name}.json").write_text(text + "\n", "ascii")
                count += 1
        setting = {"ports": PORTS, "root": _ROOT_FILE, "lines": _SET_UP}
        (self._folder / "set-up.json").write_text(json.dumps(setting, indent=1) + "\n", "ascii")
        (self._folder / "run.py").write_bytes((Path(__file__).parent / "run.py").read_bytes())
        for path, data in make_certificates().items():
            (self._folder / "tls" / path).write_bytes(data)
        return count


KNOWN_KEYS: Final = frozenset({
    *("subject", "also", "case", "restart", "timeout_s", "step_timeout_s", "clean", "puts", "modules"),
    *("prepare", "files", "artifacts", "resources", "phases", "proxy", "signatures", "tamper", "serves"),
    *("half", "spoil", "steps", "shows"),
})  # fmt: skip


def _clean_modules(given: Given) -> list[str]:
    return [f'rmdir /s /q "{_MODULES}\\{name}"' for name in given.get("modules", {})]


class _Case:
    """One case: its plan for each build of Windows, and its steps."""

    def __init__(self, renderer: Renderer, given: Given) -> None:
        self._renderer, self._given = renderer, given
        self._phases: list[list[Given]] = given.get("phases") or [given.get("resources", [])]
        self._artifacts = {name: renderer.content(one) for name, one in given.get("artifacts", {}).items()}
        self._files = {f"files/case/{name}": renderer.content(one) for name, one in given.get("files", {}).items()}
        self._made = [[self._resource(one) for one in phase] for phase in self._phases]
        self._plans: dict[str, tuple[bytes, bytes, Given]] = {}
        if any(self._phases):
            self._plans = {build: self._plan(int(build), name) for build, name in renderer.builds.items()}

    def serves(self) -> dict[str, list[Given]]:
        """The answers of the server: each artifact at its own path, and what the case says."""
        paths = {f"/{name}": [{"file": self._renderer.store(data)}] for name, data in self._artifacts.items()}
        return {**paths, **{path: [*map(self._answer, own)] for path, own in self._given.get("serves", {}).items()}}

    def _answer(self, given: Given) -> Given:
        file = {"file": self._renderer.store(self._renderer.content(given["file"]))} if "file" in given else {}
        return {**given, **file}

    def _resource(self, given: Given) -> model.PlannedResource:
        """A resource by the models of the steps: a digest that is not given is that of the file or artifact."""
        fields = {key: self._value(value) for key, value in given.items() if key not in ("kind", "effects", *_EXPECTED)}
        if given["kind"] in ("file", "script", "certificate", "update") and "sha256" not in fields:
            origin = self._files.get(fields.get("source", "")) or self._artifacts.get(fields.get("artifact", ""), b"")
            fields["sha256"] = hashlib.sha256(origin).hexdigest()
        resource = KINDS[given["kind"]].model_validate_json(json.dumps(fields))
        planned = resource.planned()
        effects = tuple(
            plan_effect(kind, EFFECTS[kind].model_validate(self._value(effect)))
            for one in given.get("effects", ())
            for kind, effect in one.items()
        )
        return model.PlannedResource(
            f"case/{resource.kind}:{resource.label}", planned.kind, planned.fields(), None, effects
        )

    def _value(self, value: object) -> Any:  # noqa: ANN401 - JSON
        """A value of a field: `sha256_of` is the digest of a content."""
        if isinstance(value, dict) and "sha256_of" in value:
            return hashlib.sha256(self._renderer.content(value["sha256_of"])).hexdigest()
        if isinstance(value, dict):
            return {key: self._value(one) for key, one in value.items()}
        return [self._value(one) for one in value] if isinstance(value, list) else expand(value)

    def _plan(self, build: int, release: str) -> tuple[bytes, bytes, Given]:
        """plan.json, the bundle, and the values of the tree's HCL variables for the guest."""
        made = [resource for phase in self._made for resource in phase]
        kinds = {resource.kind for resource in made} | {effect.kind for one in made for effect in one.effects}
        own = ("engine.psm1", "common.psm1", "download.psm1", "seal.psm1", *(f"kinds/{kind}.ps1" for kind in kinds))
        files = {**{name: _read(f"packer/guest/{name}") for name in own}, **self._files}
        names = [f"phase-{number}" for number in range(1, len(self._made) + 1)]
        phases = [
            model.Phase(name, name != names[-1], (model.PlannedStep("case", False, tuple(made)),) if made else ())
            for name, made in zip(names, self._made, strict=True)
        ]
        plan = model.BuildPlan(
            image=model.ImagePart(
                *("aws", {"release": release, "build": build}, {}, {}, tuple(phases)),
                {
                    n: model.PlannedArtifact(hashlib.sha256(one).hexdigest(), len(one))
                    for n, one in self._artifacts.items()
                },
                {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
                {},
            ),
            build=model.BuildPart(
                *("case", "aws", {}, {name: f"https://{NAMES[0]}:{PORTS[0]}/{name}" for name in self._artifacts}),
                {"case": model.StepNotes("A case", self._given.get("step_timeout_s", 300))},
                dict.fromkeys(names, 600),
                *({}, {}, self._given.get("proxy")),
                signatures={
                    hashlib.sha256(self._files[f"files/case/{name}"]).hexdigest(): model.PlannedSignature(**signature)
                    for name, signature in self._given.get("signatures", {}).items()
                },
                unsigned=tuple(hashlib.sha256(one).hexdigest() for one in self._files.values())
                if self._given.get("signatures")
                else (),
            ),
            settings=cast(TargetSettings, None),
            publish_timeout_min=1,
        )
        plan_json = guest_plan(plan)
        changed = {name: self._renderer.content(one) for name, one in self._given.get("tamper", {}).items() if one}
        left = {name: data for name, data in files.items() if self._given.get("tamper", {}).get(name, True)}
        bundle = bundle_zip(plan_json, {**left, **changed})
        digests = [hashlib.sha256(data).hexdigest() for data in (bundle, plan_json)]
        return plan_json, bundle, guest_values(plan, *digests)

    def steps(self, case: str) -> Iterator[Given]:
        """The steps of run.py."""
        if self._plans:
            yield self._put(BUNDLE_PATH, {build: plan[1] for build, plan in self._plans.items()})
            yield self._put(START_PATH, _read("packer/guest/start.ps1"))
        for name, text in self._given.get("modules", {}).items():
            yield self._put(rf"{_MODULES}\{name}\{name}.psm1", self._renderer.content(text))
        for path, content in self._given.get("puts", {}).items():
            yield from self._content(path, content)
        for line in self._given.get("prepare", []):
            yield self._step({"run": line, "codes": []})
        own: list[Given] = self._given.get("steps") or list(self._standard(case))
        for step in own:
            yield from self._expand(step)

    def _standard(self, case: str) -> Iterator[Given]:
        """The steps of a case that has none of its own, by its name."""
        assert case in STANDARD, f"{case} needs steps"
        set_ = {"phase": "phase-1", "all": "changed"}
        half = [{"run": line, "codes": []} for line in self._given.get("half", [])]
        spoil = [{"run": line} for line in self._given.get("spoil", [])]
        yield from {
            "before": [set_],
            "again": [set_, {"phase": "phase-1", "all": "ok"}],
            "spoiled": [
                *(set_, *spoil, {"check": "all", "all": "spoiled", "code": 5}, {"phase": "phase-1", "all": "spoiled"}),
            ],
            "interrupted": [{"killed": True}, *half, {"phase": "phase-1", "all": "interrupted"}],
        }[case]
        yield {"shows": True}

    def _expand(self, step: Given) -> Iterator[Given]:
        verb = next(iter(step))
        if verb == "shows":
            for one in self._given["shows"]:
                yield self._step(one)
        elif verb == "killed":
            yield from self._killed()
        elif verb in ("phase", "check"):
            yield self._engine(step)
        elif verb == "put":
            yield from self._content(step["put"], step["content"])
        else:
            yield self._step(step)

    def _content(self, path: str, content: object) -> Iterator[Given]:
        yield self._put(expand(path), self._renderer.content(content))
        if isinstance(content, dict) and "stand_in" in content:
            rules = json.dumps(expand(content["stand_in"])).encode()
            yield self._put(expand(path).removesuffix(".exe") + ".json", rules)

    def _put(self, path: str, data: bytes | Mapping[str, bytes]) -> Given:
        if isinstance(data, bytes):
            return {"put": path, "file": self._renderer.store(data)}
        return {"put": path, "file": {build: self._renderer.store(one) for build, one in data.items()}}

    def _step(self, step: Given) -> Given:
        verb = next(iter(step))
        assert isinstance(step[verb], str) or step[verb] is True, f"a step is no text: {step}"
        return {**step, verb: expand(step[verb])}

    def _killed(self) -> Iterator[Given]:
        """What a run leaves that was killed while it set the first phase: its lock, its state and half of the next."""
        states = {}
        for build, (plan_json, _, _) in self._plans.items():
            resources = {resource.id: {"status": "setting", "ms": 0} for resource in self._made[0]}
            phase = {"status": "started", "changed": 0, "restart": False, "ms": 0}
            states[build] = json.dumps(
                {
                    "state_version": 1, "plan_sha256": hashlib.sha256(plan_json).hexdigest(),
                    "phases": {"phase-1": phase}, "resources": resources, "signatures": [], "left_out": {},
                }
            ).encode()  # fmt: skip
        root = r"C:\ProgramData\imagegen"
        yield self._put(rf"{root}\state.json", states)
        yield self._put(rf"{root}\state.json.new", {build: data[: len(data) // 2] for build, data in states.items()})
        yield self._put(rf"{root}\engine.lock", b"")

    def _engine(self, step: Given) -> Given:
        """A run of the engine, and what it must say: `all` is changed, ok, spoiled or interrupted."""
        verb, phase = next(iter(step.items()))
        name = "phase-1" if phase == "all" else phase
        check = f" -Phase {phase} -Check" if verb == "check" else ""
        lines = {
            build: values["phases"][name]["command"].replace(f" -Phase {name}", check or f" -Phase {name}")
            for build, (_, _, values) in self._plans.items()
        }
        if step.get("with"):
            old, new = step["with"]
            lines = {build: re.sub(old, new, line) for build, line in lines.items()}
        made: Given = {"run": lines, "codes": [step.get("code", 0)], "timeout_s": step.get("timeout_s", 420)}
        made.update({key: step[key] for key in ("has", "lacks") if key in step})
        number = int(name.rpartition("-")[2]) - 1
        if verb == "check":
            if "drifted" in step or step.get("all") == "spoiled":
                made["check"] = step["drifted"] if "drifted" in step else self._reasons()
        elif "all" in step or "events" in step:
            made["events"] = self._events(step, number)
        return made

    def _reasons(self) -> dict[str, str]:
        """Why each resource that is spoiled is not as planned."""
        made, given = itertools.chain(*self._made), itertools.chain(*self._phases)
        return {resource.id: one["spoiled"] for resource, one in zip(made, given, strict=True) if "spoiled" in one}

    def _events(self, step: Given, number: int) -> list[Given]:
        """The events of a phase, in order. `events` are pairs of a status and a reason, one for each resource."""
        given, phase = self._phases[number], {"event": "phase", "phase": f"phase-{number + 1}"}
        pairs: list[list[str]] = step.get("events", [])
        if step.get("all") == "ok":
            pairs = [["ok", ""] for _ in given]
        elif step.get("all") == "spoiled":
            pairs = [["changed", one["spoiled"]] if "spoiled" in one else ["ok", ""] for one in given]
        elif step.get("all") == "interrupted":
            pairs = [["changed", str(one.get("interrupted", one["says"]))] for one in given]
        elif step.get("all"):
            pairs = [["changed", one["says"]] for one in given]
        changed = sum(status == "changed" for status, _ in pairs)
        ended = "finished" if step.get("code", 0) in (0, 3010) else "failed"
        return [
            {**phase, "status": "started"},
            *(
                {"event": "resource", "id": made.id, "status": status, "reason": reason}
                for made, (status, reason) in zip(self._made[number], pairs, strict=False)
            ),
            {**phase, "status": ended, "changed": changed},
        ]


def expand(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A value whose texts have the folder of the cases, and PowerShell's command line."""
    if isinstance(value, dict):
        return {expand(key): expand(one) for key, one in value.items()}
    if isinstance(value, list):
        return [expand(one) for one in value]
    return value.replace("CASE\\", f"{PLACE}\\").replace("$PS ", f"{_POWERSHELL} ") if isinstance(value, str) else value


def make_certificates() -> dict[str, bytes]:
    """A root for throw-away machines, and the server's certificate with its key."""
    root = trustme.CA(organization_name="imagegen: Windows cases")
    server = root.issue_cert(*NAMES, "localhost")
    return {"root.cer": root.cert_pem.bytes(), "server.pem": server.private_key_and_cert_chain_pem.bytes()}


def build_stand_in() -> bytes:
    """The program of tests/windows/stand_in, for Windows."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "stand-in.exe"
        environment = {**os.environ, "GOOS": "windows", "GOARCH": "amd64", "CGO_ENABLED": "0"}
        command = ["go", "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", str(target), "."]
        subprocess.run(command, cwd=CASES.parent / "stand_in", env=environment, check=True, timeout=900)  # noqa: S603
        return target.read_bytes()


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tests.windows.render FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    if folder.exists() and any(folder.iterdir()):
        print(f"failed: {folder} is not empty", file=sys.stderr)
        return 2
    stand_in = functools.cache(build_stand_in)
    print(f"{Renderer(folder, stand_in).render_all()} cases in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
