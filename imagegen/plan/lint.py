"""Finds mistakes in the resources of a plan that would show only on a node, hours later. Pure; needs no lock.

Each check judges one thing of all resources together. Most of what it knows about programs is data:
imagegen/catalog/programs.json. It knows only the programs, features and commands that the shipped steps use, so an
operator's own steps are not judged by what it does not know.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PureWindowsPath
from typing import Final

from imagegen.base.errors import Problem
from imagegen.catalog.facts import JsonObject, numbers, paths, stock_paths, table
from imagegen.catalog.products import find_product
from imagegen.config.problems import nearest
from imagegen.steps.accounts import TRUSTED
from imagegen.steps.evaluate import Draft, EvaluatedStep
from imagegen.steps.kinds import KINDS

_PARENTS: Final = ("file", "extract")
_OWN_FIELDS: Final = {"path": "entry", "acl": "path", "defender": "process", "archive": "into", "task": "program"}
_PIPE: Final = re.compile(r"(?:\\\\\.\\pipe\\|//\./pipe/)([\w-]+)")
_SCRIPT: Final = re.compile(r'(?<![\w-])-File\s+("[^"]+"|\S+)(.*)', re.IGNORECASE | re.DOTALL)
_CONTROL: Final = "HKLM:\\SYSTEM\\CurrentControlSet\\Control\\"
_SERVICES: Final = "HKLM:\\SYSTEM\\CurrentControlSet\\Services\\"


@dataclasses.dataclass(frozen=True)
class Placed:
    """A resource, with its step and the texts of files that the step brings."""

    step: EvaluatedStep
    draft: Draft

    @property
    def shipped(self) -> bool:
        """Whether the step is imagegen's own."""
        return self.step.step.shipped

    def text(self, field: str) -> str:
        """The field as text. Empty if it is missing."""
        value = self.draft.fields.get(field)
        return "" if value is None else str(value)

    def content(self) -> str:
        """The content of the file that it puts on the machine. Empty if imagegen does not bring it as text."""
        return self.step.texts.get(self.text("source"), b"").decode("utf-8", "replace")

    def problem(self, message: str, hint: str, field: str = "") -> Problem:
        """A problem at its place in resources.yml."""
        place = (*self.draft.path, field) if field in self.draft.fields else self.draft.path
        return self.step.step.resources.problem(place, message, hint)


@dataclasses.dataclass(frozen=True)
class Service:
    """A Windows service of the plan, and its command line, with the one that nssm starts for it."""

    placed: Placed
    command: str

    @property
    def words(self) -> list[str]:
        return re.findall(r'"[^"]*"|\S+', self.command)

    @property
    def programs(self) -> list[str]:
        """The names of the programs that it starts, the first one first."""
        paths = [PureWindowsPath(word.strip('"')) for word in self.words]
        return [path.name.lower() for path in paths if path.suffix.lower() == ".exe" and path.drive]


class Resources:
    """The resources of all steps of a plan, in order."""

    def __init__(self, steps: Iterable[EvaluatedStep], provider: str) -> None:
        self.all = [Placed(step, draft) for step in steps for draft in step.drafts]
        self.stock = {path.lower() for path in stock_paths(provider)}

    def of(self, *kinds: str) -> list[Placed]:
        return [one for one in self.all if one.draft.kind in kinds]

    @functools.cached_property
    def services(self) -> list[Service]:
        started = {one.text("key").lower() + one.text("name"): one.text("data") for one in self.of("registry")}
        found = []
        for one in self.of("service"):
            key = f"{_SERVICES}{one.text('name')}\\Parameters".lower()
            program, arguments = (started.get(key + name, "") for name in ("Application", "AppParameters"))
            found.append(
                Service(one, " ".join(filter(None, (one.text("command"), program and f'"{program}"', arguments))))
            )
        return found

    @functools.cached_property
    def scripts(self) -> dict[str, Placed]:
        """The PowerShell scripts that the plan puts on the machine, by path in lower case."""
        return {one.text("path").lower(): one for one in self.of("file") if one.text("path").lower().endswith(".ps1")}

    @property
    def has_all_steps(self) -> bool:
        """Whether the plan has steps of imagegen: own steps alone are no node."""
        return any(one.shipped for one in self.all)


Check = Callable[[Resources], Iterator[Problem]]


def find_mistakes(steps: Iterable[EvaluatedStep], provider: str) -> Iterator[Problem]:
    """Every mistake that a check finds in the steps of one target."""
    resources = Resources(steps, provider)
    for check in CHECKS:
        yield from check(resources)


def _row(program: str) -> JsonObject:
    found: JsonObject = table("programs")["programs"].get(program, {})
    return found


def find_missing_paths(resources: Resources) -> Iterator[Problem]:
    """Paths that a resource needs and no earlier one makes. The bytes of an archive are compared later."""
    made, unpacked = set(resources.stock), list[str]()
    for one in resources.all:
        for path in _needs(one):
            lower = path.lower()
            in_archive = any(lower.startswith(folder) for folder in unpacked)
            if lower not in made and not in_archive and len(PureWindowsPath(path).parts) > 1:
                hint = "add a directory, file, archive or package above that makes it"
                yield one.problem(f"nothing before this {one.draft.kind} makes {path}", hint)
        made |= {path.lower() for path in _makes(one)}
        if one.draft.kind == "archive" and not one.draft.fields.get("expect"):
            unpacked.append(f"{one.text('into').lower()}\\")


def _makes(one: Placed) -> Iterator[str]:
    if one.draft.kind in ("file", "extract", "directory"):
        yield one.text("path")
    if one.draft.kind == "directory":
        yield from map(str, PureWindowsPath(one.text("path")).parents)
    if one.draft.kind == "archive":
        for member in one.draft.fields.get("expect") or ():
            path = PureWindowsPath(one.text("into"), str(member))
            yield from map(str, (path, *path.parents))
    if one.draft.kind == "package":
        for file in one.draft.fields.get("files") or ():
            yield from map(str, (PureWindowsPath(str(file)), *PureWindowsPath(str(file)).parents))


def _needs(one: Placed) -> Iterator[str]:
    kind = one.draft.kind
    if kind in _PARENTS:
        yield str(PureWindowsPath(one.text("path")).parent)
    elif one.text(_OWN_FIELDS.get(kind, "")):
        yield one.text(_OWN_FIELDS[kind])
    if kind in ("service", "command") and one.text("command" if kind == "service" else "program"):
        yield _first(one.text("command" if kind == "service" else "program"))
    if script := _SCRIPT.search(one.text("arguments") or one.text("command")):
        yield script[1].strip('"')


def _first(command: str) -> str:
    """The program of a command line."""
    match = re.match(r'"([^"]+)"|(.+?\.exe)(?: |$)', command, re.IGNORECASE)
    return (match[1] or match[2]) if match else command


def find_wrong_contents(resources: Resources) -> Iterator[Problem]:
    """Files that an archive of a known product does not have where a resource expects them."""
    for one in resources.of("archive"):
        request = one.step.requests.get(one.text("artifact"))
        product = find_product(request.product) if request and not request.own else None
        if request is None or product is None:
            continue
        strip = int(one.draft.fields.get("strip") or 0)
        version = numbers(request.version)
        rows = [row for row in product.contents if _has_contents(row, version)]
        members = {"/".join(member.split("/")[strip:]) for row in rows for member in row["members"]}
        for name in (str(name).replace("\\", "/") for name in one.draft.fields.get("expect") or ()):
            if rows and name not in members:
                message = f"{product.name} {request.version} has no {name} after {strip} folders are stripped"
                yield one.problem(message, nearest(name, sorted(members - {""})), "strip")


def _has_contents(row: JsonObject, version: tuple[int, ...]) -> bool:
    """Whether a version is in the range of a row of contents."""
    return numbers(row.get("since", "0")) <= version and ("before" not in row or version < numbers(row["before"]))


def find_missing_scripts(resources: Resources) -> Iterator[Problem]:
    """PowerShell scripts that a batch file runs and that nothing in the plan makes."""
    for one in resources.of("file"):
        if not one.text("path").lower().endswith((".cmd", ".bat")):
            continue
        for quoted, plain in re.findall(r'(?<![\w-])-File\s+(?:"([^"]+)"|(\S+))', one.content(), re.IGNORECASE):
            path = re.sub(r"(?i)%(systemroot|windir)%", lambda _: r"C:\Windows", quoted or plain)
            if path.lower() not in resources.scripts:
                yield one.problem(f"it runs {path}, which nothing in the plan makes", "")


def find_readable_secrets(resources: Resources) -> Iterator[Problem]:
    """Folders for keys and tokens that every account of the node could read."""
    private = {paths()[name].lower() for name in table("layout")["private_folders"]}
    acls = {one.text("path").lower(): _is_private(one.draft.fields.get("entries")) for one in resources.of("acl")}
    for one in resources.of("directory"):
        folder = PureWindowsPath(one.text("path").lower())
        # A folder without an acl of its own inherits that of the nearest folder above it.
        nearest_acl = next((acls[str(up)] for up in (folder, *folder.parents) if str(up) in acls), False)
        if str(folder) in private and not nearest_acl:
            message = f"every account of the node could read {one.text('path')}, which has keys or tokens"
            hint = "add an acl with full rights for S-1-5-18 and S-1-5-32-544, and no other entry"
            yield one.problem(message, hint)


def _is_private(entries: object) -> bool:
    rows = entries if isinstance(entries, list) else []
    return bool(rows) and all(isinstance(row, dict) and row.get("sid") in TRUSTED for row in rows)


def find_wrong_services(resources: Resources) -> Iterator[Problem]:
    """Services whose command does not answer the service manager, or loses its log. Windows ends them after 30 s."""
    for service in resources.services:
        own = service.programs[:1]
        row = _row(own[0]) if own else {}
        if row.get("service") is False:
            message = f"{own[0]} never answers the service manager, so Windows cannot run it as a service"
            yield service.placed.problem(message, "run it with nssm.exe", "command")
        elif row.get("word", "") not in ("", *service.words):
            message = f"{own[0]} answers the service manager only with {row['word']}"
            yield service.placed.problem(message, f"add {row['word']} to the command", "command")
        if row.get("flag") and not any(word.split("=")[0] == row["flag"] for word in service.words):
            message = f"the log of {own[0]} is lost: a service has no console, and its command has no {row['flag']}"
            yield service.placed.problem(message, f"add {row['flag']} and a path to the command", "command")


def find_unknown_flags(resources: Resources) -> Iterator[Problem]:
    """Flags that no release of a program has."""
    for service in resources.services:
        program = ""
        for word in (word.strip('"') for word in service.words):
            if PureWindowsPath(word).suffix.lower() == ".exe":
                program = PureWindowsPath(word).name.lower()
            flags, name = _row(program).get("flags"), word.partition("=")[0].lstrip("-")
            if word.startswith("-") and flags and name not in flags and service.placed.shipped:
                yield service.placed.problem(f"{program} has no flag {word.partition('=')[0]}", nearest(name, flags))


def find_missing_needs(resources: Resources) -> Iterator[Problem]:
    """What a program needs of the rest of the plan: a firewall rule for its port, a registry value, a feature."""
    ports = {
        one.text("port")
        for one in resources.of("firewall")
        if (one.text("direction"), one.text("action")) == ("in", "allow")
    }
    values = {f"{one.text('key')}\\{one.text('name')}".lower() for one in resources.of("registry")}
    features = {one.text("name").lower() for one in resources.of("feature")}
    for service in resources.services:
        for program in service.programs:
            row = _row(program)
            if row.get("port") and str(row["port"]) not in ports:
                message = f"{program} listens on TCP port {row['port']}, and no firewall rule of the plan allows it"
                yield service.placed.problem(
                    message, f"add a firewall resource: direction in, action allow, port {row['port']}"
                )
            value = _CONTROL + row["control_value"] if row.get("control_value") else ""
            if value and value.lower() not in values:
                message = f"{program} may start too slowly for Windows: no resource sets {value}"
                yield service.placed.problem(message, "add a registry resource that sets it")
            if row.get("feature") and row["feature"].lower() not in features:
                message = f"{program} needs the Windows feature {row['feature']}, which no resource installs"
                yield service.placed.problem(message, f"add a feature resource with the name {row['feature']}")


def find_unknown_dependencies(resources: Resources) -> Iterator[Problem]:
    """Services that another one depends on, and that neither Windows nor the plan has."""
    known = {name.lower() for name in table("programs")["services"]}
    known |= {one.text("name").lower() for one in resources.of("service")}
    known |= {str(name).lower() for one in resources.of("package") for name in one.draft.fields.get("services") or ()}
    for one in resources.of("service"):
        for name in one.draft.fields.get("depends_on") or ():
            if str(name).lower() not in known and one.shipped:
                message = f"service {one.text('name')} depends on service {name}, which nothing in the plan makes"
                yield one.problem(message, nearest(str(name), sorted(known)), "depends_on")


def find_unknown_pipes(resources: Resources) -> Iterator[Problem]:
    """Named pipes that no program of the plan opens."""
    opened = {
        pipe for service in resources.services for name in service.programs for pipe in _row(name).get("pipes", ())
    }
    if not opened:
        return
    for one in resources.all:
        texts = (
            one.text("command"),
            one.text("data"),
            one.text("arguments"),
            one.content() if one.draft.kind == "file" else "",
        )
        for pipe in sorted({pipe for text in texts for pipe in _PIPE.findall(text)} - opened):
            if one.shipped and not one.text("path").lower().endswith((".ps1", ".psm1")):
                yield one.problem(f"no program of the plan opens the named pipe {pipe}", nearest(pipe, sorted(opened)))


def find_unknown_parameters(resources: Resources) -> Iterator[Problem]:
    """Parameters that a script of the plan does not have."""
    commands = [(one, f"{one.text('arguments')}") for one in resources.of("task", "command")]
    commands += [(service.placed, service.command) for service in resources.services]
    for one, command in commands:
        found = _SCRIPT.search(command)
        script = resources.scripts.get(found[1].strip('"').lower()) if found else None
        if not found or not script or not (content := script.content()):
            continue
        declared = re.search(r"\bparam\s*\((.*?)\)\s*\n", content, re.DOTALL)
        names = {name.lower() for name in re.findall(r"\$(\w+)", declared[1])} if declared else set[str]()
        for name in re.findall(r"(?:^|\s)-([A-Za-z]\w*)", found[2]):
            if name.lower() not in names:
                path = script.text("path")
                yield one.problem(f"{path} has no parameter -{name}", nearest(name.lower(), sorted(names)))


def find_unknown_features(resources: Resources) -> Iterator[Problem]:
    """Features that no Windows Server has."""
    known = table("programs")["features"]
    for one in resources.of("feature"):
        if one.text("name") not in known and one.shipped:
            message = f"Windows Server has no feature {one.text('name')}"
            yield one.problem(message, nearest(one.text("name"), known), "name")


def find_unknown_commands(resources: Resources) -> Iterator[Problem]:
    """Commands of Windows' programs in a form that nobody has seen work."""
    forms = table("programs")["commands"]
    for one in resources.of("command"):
        program = PureWindowsPath(one.text("program")).name.lower()
        unless = one.draft.fields.get("unless")
        lines = [one.text("arguments"), str(unless.get("arguments")) if isinstance(unless, dict) else ""]
        for line in lines if one.shipped and program in forms else ():
            if not any(re.fullmatch(form, line, re.IGNORECASE) for form in forms[program]):
                hint = "imagegen knows these: " + "; ".join(forms[program])
                yield one.problem(f"{program} has no such command: {line}", hint, "arguments")


def find_unknown_nssm_values(resources: Resources) -> Iterator[Problem]:
    """Values that nssm does not read."""
    known = table("programs")["nssm_values"]
    wrapped = {
        f"{_SERVICES}{service.placed.text('name')}\\Parameters".lower()
        for service in resources.services
        if service.programs[:1] == ["nssm.exe"]
    }
    for one in resources.of("registry"):
        name = one.text("name")
        if one.text("key").lower() in wrapped and name not in known:
            yield one.problem(f"nssm reads no value {name}", nearest(name, known), "name")


def find_missing_network_programs(resources: Resources) -> Iterator[Problem]:
    """Programs that a CNI config names and that nothing in the plan makes."""
    programs = {PureWindowsPath(path).name.lower() for one in resources.all for path in _makes(one)}
    for one in resources.of("file"):
        if not one.shipped or not re.search(r"\.conf(list)?$", one.text("path")):
            continue
        for name in _network_programs(one.content()):
            if f"{name.lower()}.exe" not in programs:
                yield one.problem(f"the CNI config runs {name}.exe, which nothing in the plan makes", "")


def find_unknown_backends(resources: Resources) -> Iterator[Problem]:
    """Networks that flanneld of Windows cannot make."""
    known = _row("flanneld.exe")["backends"]
    for one in resources.of("file"):
        network = _read_json(one.content()) if one.text("path").endswith("\\net-conf.json") else {}
        backend = str(network.get("Backend", {}).get("Type", ""))
        if backend not in ("", *known):
            yield one.problem(f"flanneld on Windows has no backend {backend}", nearest(backend, known))


def _network_programs(text: str) -> list[str]:
    """The names of the programs in a CNI config. Empty for another file."""
    config = _read_json(text)
    plugins = config.get("plugins", [config]) if "cniVersion" in config else []
    parts = [part for plugin in plugins for part in (plugin, plugin.get("ipam"), plugin.get("delegate"))]
    return [str(part["type"]) for part in parts if isinstance(part, dict) and part.get("type")]


def _read_json(text: str) -> JsonObject:
    """The object in a JSON text. Empty for any other text: its reader judges it."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


CHECKS: Final[tuple[Check, ...]] = (
    find_missing_paths, find_wrong_contents, find_missing_scripts, find_readable_secrets,
    find_wrong_services, find_unknown_flags, find_missing_needs, find_unknown_dependencies,
    find_unknown_pipes, find_unknown_parameters, find_unknown_features, find_unknown_commands,
    find_unknown_nssm_values, find_missing_network_programs, find_unknown_backends,
)  # fmt: skip
assert set(_OWN_FIELDS) | set(_PARENTS) <= set(KINDS)  # noqa: S101 - a renamed kind must not end its check silently
