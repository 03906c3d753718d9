"""The stand-in of Azure's wireserver: it tells a machine its goal state, and takes its report about provisioning.

The goal state of a machine without secrets of a key vault has no `Certificates`. What is at the address in that element
is in `server_certificates.py`. Agents name themselves in `x-ms-agent-name` or `x-ms-guest-agent-name`, and the
wireserver answers a request without either. It needs a supported `x-ms-version`, except for the list of versions and
for reports in JSON. The codes in the bodies of errors, other than that of status 410, are the stand-in's own.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from imagegen.rehearsal.clouds.azure import server_certificates
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.model import Clock, Instance
    from imagegen.rehearsal.network.messages import Request

ADDRESS: Final = "168.63.129.16"
# Both give the settings of extensions, and their secrets, to every process that asks (CVE-2021-27075).
SECRET_PORTS: Final = (80, 32526)
READY: Final = "Ready"
NOT_READY: Final = "NotReady"
FAILED: Final = "ProvisioningFailed"
INCARNATION: Final = "1"
_PREFERRED = "2015-04-05"
_VERSIONS = (
    *(_PREFERRED, "2012-11-30", "2012-09-15", "2012-05-15", "2011-12-31", "2011-10-15", "2011-08-31", "2011-04-07"),
    *("2010-12-15", "2010-28-10"),
)
_XML = '<?xml version="1.0" encoding="utf-8"?>\n'
_NAMESPACES = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema"'
_HEALTH_PATH = "Container/RoleInstanceList/Role"


@dataclasses.dataclass(frozen=True)
class Report:
    """What the machine told Azure about its provisioning, and how many seconds after it was created."""

    state: str
    detail: str
    at_s: float


class _InvalidRequest(Exception):
    """A request that the wireserver refuses with a status, a code and a message."""

    def __init__(self, message: str, status: int = 400, code: str = "InvalidRequest") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class WireServer:
    """The wireserver as one machine sees it."""

    def __init__(self, instance: Instance, clock: Clock) -> None:
        self._clock = clock
        self._instance_id = instance.instance_id
        self._certificates = instance.certificates
        self._configs = _configs(instance)
        # A machine keeps its container when it restarts.
        self.container_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{instance.instance_id}/container"))
        self.reports: list[Report] = []

    def __call__(self, request: Request) -> Response:
        query = {name.lower(): value for name, value in request.query.items()}
        part = query.get("comp", "").lower()
        try:
            return self._answer(request, part, query.get("type", ""))
        except _InvalidRequest as error:
            text = f"<Error {_NAMESPACES}><Code>{error.code}</Code><Message>{escape(str(error))}</Message></Error>"
            return _xml(text, status=error.status, note=f"refused: {error}")

    def _answer(self, request: Request, part: str, kind: str) -> Response:
        path = request.path.strip("/")
        match request.method, path, part:
            case "GET", "", "versions":
                return _xml(_versions())
            case "POST", "provisioning/health", "":
                self._add_report(*_read_json_report(request.body))
                return Response(201)
            case _:
                _check_version(request)
                return self._answer_version(request, path, part, kind)

    def _answer_version(self, request: Request, path: str, part: str, kind: str) -> Response:
        match request.method, path, part:
            case "GET", "machine", "goalstate":
                return _xml(self._goal_state())
            case "POST", "machine", "health":
                self._add_report(*self._read_report(request.body))
                return Response(200)
            case "POST", "machine", "roleproperties":
                self._check_identity(_parse(request.body, "RoleProperties"), "Container/RoleInstances/RoleInstance/Id")
                return Response(202)
            case "POST", "machine", "telemetrydata":
                return Response(200)
            case "GET", _, "config" if path == self._role_path and kind in self._configs:
                return _xml(self._configs[kind])
            case "GET", _, "certificates" if path == self._role_path and self._certificates:
                return self._answer_certificates(request)
            case _:
                raise _InvalidRequest(f"unknown address: {request.method} {request.path}?comp={part}", 404)

    def _answer_certificates(self, request: Request) -> Response:
        _check_incarnation(request.query.get("incarnation", ""))
        try:
            return _xml(server_certificates.answer(self._certificates, request.headers, INCARNATION))
        except server_certificates.UnknownToStandIn as error:
            return Response(500, str(error).encode(), fault=str(error))
        except ValueError as error:
            raise _InvalidRequest(str(error)) from error

    @property
    def _role_path(self) -> str:
        return f"machine/{self.container_id}/{self._instance_id}"

    def _goal_state(self) -> str:
        base = f"http://{ADDRESS}:80/{self._role_path}?comp=config&type={{}}&incarnation={INCARNATION}"
        tags = {kind: kind[:1].upper() + kind[1:] for kind in self._configs}
        certificates = f"http://{ADDRESS}:80/{self._role_path}?comp=certificates&incarnation={INCARNATION}"
        links = "".join(f"<{tag}>{escape(base.format(kind))}</{tag}>" for kind, tag in tags.items())
        if self._certificates:
            links += f"<Certificates>{escape(certificates)}</Certificates>"
        return (
            '<GoalState xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
            'xsi:noNamespaceSchemaLocation="goalstate10.xsd">'
            f"<Version>{_PREFERRED}</Version><Incarnation>{INCARNATION}</Incarnation>"
            "<Machine><ExpectedState>Started</ExpectedState><StopRolesDeadlineHint>300000</StopRolesDeadlineHint>"
            "<LBProbePorts><Port>16001</Port></LBProbePorts><ExpectHealthReport>FALSE</ExpectHealthReport></Machine>"
            f"<Container><ContainerId>{self.container_id}</ContainerId><RoleInstanceList><RoleInstance>"
            f"<InstanceId>{escape(self._instance_id)}</InstanceId><State>Started</State>"
            f"<Configuration>{links}<ConfigName>{self.container_id}.0.{escape(self._instance_id)}.1.xml</ConfigName>"
            "</Configuration></RoleInstance></RoleInstanceList></Container></GoalState>"
        )

    def _add_report(self, state: str, sub_status: str, description: str) -> None:
        if state not in (READY, NOT_READY):
            raise _InvalidRequest(f"{state!r} is not a state of health")
        detail = ": ".join(part for part in (sub_status, description) if part)
        self.reports.append(Report(state, detail, self._clock()))

    def _read_report(self, body: bytes) -> tuple[str, str, str]:
        root = _parse(body, "Health")
        _check_incarnation(_text(root, "GoalStateIncarnation"))
        self._check_identity(root, f"{_HEALTH_PATH}/InstanceId")
        state = _text(root, f"{_HEALTH_PATH}/Health/State")
        details = {name: _text(root, f"{_HEALTH_PATH}/Health/Details/{name}") for name in ("SubStatus", "Description")}
        return state, details["SubStatus"], details["Description"]

    def _check_identity(self, root: ET.Element, instance_path: str) -> None:
        given = (_text(root, "Container/ContainerId"), _text(root, instance_path))
        if given != (self.container_id, self._instance_id):
            raise _InvalidRequest(f"this machine is not instance {given[1]!r} in container {given[0]!r}")


def _check_version(request: Request) -> None:
    version = request.headers.get("x-ms-version", "")
    if version not in _VERSIONS:
        raise _InvalidRequest(f"the header x-ms-version names no supported version: {version!r}")


def _check_incarnation(incarnation: str) -> None:
    if incarnation != INCARNATION:
        raise _InvalidRequest(f"the goal state has no incarnation {incarnation}", 410, "ResourceNotAvailable")


def _parse(body: bytes, tag: str) -> ET.Element:
    try:
        root = ET.fromstring(body)  # noqa: S314  # from the rehearsed machine, in a request of limited size
    except ET.ParseError as error:
        raise _InvalidRequest(f"the body is not XML: {error}") from error
    if root.tag != tag:
        raise _InvalidRequest(f"the body is a {root.tag} element, not {tag}")
    return root


def _text(root: ET.Element, path: str) -> str:
    return (root.findtext(path) or "").strip()


def _read_json_report(body: bytes) -> tuple[str, str, str]:
    """Read state, sub-status and description of the newer form of a report, which needs no goal state."""
    try:
        sent = json.loads(body)
        details = sent.get("details") or {}
        return str(sent["state"]), str(details.get("subStatus", "")), str(details.get("description", ""))
    except (ValueError, KeyError, AttributeError) as error:
        raise _InvalidRequest(f"the body is not a report: {error!r}") from error


def _versions() -> str:
    supported = "".join(f"<Version>{version}</Version>" for version in _VERSIONS)
    preferred = f"<Preferred><Version>{_PREFERRED}</Version></Preferred>"
    return f"<Versions {_NAMESPACES}>{preferred}<Supported>{supported}</Supported></Versions>"


def _xml(text: str, *, status: int = 200, note: str = "") -> Response:
    headers = (("Content-Type", "text/xml; charset=utf-8"), ("Server", "Microsoft-IIS/10.0"))
    return Response(status, (_XML + text).encode(), headers, note)


def _configs(instance: Instance) -> dict[str, str]:
    """The configurations of a machine without extensions, by their type."""
    instance_id = instance.instance_id
    certificates = server_certificates.describe(instance.certificates)
    version = f'version="1.0.0.0" goalStateIncarnation="{INCARNATION}"'
    deployment = f'<Deployment name="{uuid.uuid5(uuid.NAMESPACE_OID, instance_id).hex}" incarnation="0" />'
    deployed = f'{deployment}<Incarnation number="{INCARNATION}" instance={quoteattr(instance_id)} />'
    configs = {
        "hostingEnvironmentConfig": "<HostingEnvironmentConfig {0}>{2}{1}</HostingEnvironmentConfig>",
        "sharedConfig": "<SharedConfig {0}>{1}</SharedConfig>",
        "extensionsConfig": (
            "<Extensions {0}><GuestAgentExtension><GAFamilies /></GuestAgentExtension><Plugins /><PluginSettings />"
            "</Extensions>"
        ),
    }
    made = {name: text.format(version, deployed, certificates) for name, text in configs.items()}
    return made | {"fullConfig": f"<RoleConfig>{''.join(made.values())}</RoleConfig>"}
