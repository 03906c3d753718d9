"""Answer files of Windows Setup: their settings and commands, and their XML. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree as ET

import pydantic

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.steps.resource import Strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UNATTEND = "urn:schemas-microsoft-com:unattend"
_ACTION = "{http://schemas.microsoft.com/WMIConfig/2002/State}action"
WillReboot = Literal["Always", "OnRequest", "Never"]
SPECIALISE, OOBE = "specialize", "oobeSystem"
_DEPLOYMENT, _COMMANDS = "Microsoft-Windows-Deployment", "RunSynchronous"


class AnswerCommand(Strict):
    """A command of the specialize pass, and whether Windows restarts after it."""

    path: str
    will_reboot: WillReboot = "Never"


class AnswerFile(Strict):
    """The settings by pass, component and path of the element, and the commands of the specialize pass in order."""

    settings: dict[str, dict[str, dict[str, str]]] = {}
    commands: list[AnswerCommand] = []

    def of_pass(self, name: str) -> Mapping[str, Mapping[str, str]]:
        return self.settings.get(name, {})


def make_answer_file(answers: AnswerFile) -> bytes:
    """The XML of an answer file."""
    root = ET.Element("unattend", xmlns=_UNATTEND)
    for name, components in answers.settings.items():
        settings = ET.SubElement(root, "settings", {"pass": name})
        for component, values in components.items():
            inside = ET.SubElement(settings, "component", name=component, processorArchitecture="amd64")
            for path, text in values.items():
                _make_element(inside, path).text = text
    if answers.commands:
        settings = ET.SubElement(root, "settings", {"pass": SPECIALISE})
        deployment = ET.SubElement(settings, "component", name=_DEPLOYMENT, processorArchitecture="amd64")
        for order, command in enumerate(answers.commands, start=1):
            one = ET.SubElement(_make_element(deployment, _COMMANDS), "RunSynchronousCommand", {_ACTION: "add"})
            ET.SubElement(one, "Order").text = str(order)
            ET.SubElement(one, "Path").text = command.path
            ET.SubElement(one, "WillReboot").text = command.will_reboot
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'.encode()


def _make_element(above: ET.Element, path: str) -> ET.Element:
    element = above
    for name in path.split("/"):
        found = element.find(name)
        element = ET.SubElement(element, name) if found is None else found
    return element


def read_answer_file(data: bytes) -> AnswerFile:
    """Read the XML. Fails where Setup could not read it either."""
    try:
        root = ET.fromstring(data)  # noqa: S314  # a file of the model's disk, which this build wrote
    except ET.ParseError as error:
        raise RefusedByWindows(f"Windows Setup cannot read its answer file: {error}") from error
    if root.tag != f"{{{_UNATTEND}}}unattend":
        raise RefusedByWindows("Windows Setup cannot read its answer file: it is no unattend element")
    settings: dict[str, dict[str, dict[str, str]]] = {}
    commands: list[tuple[int, AnswerCommand]] = []
    for section in root.findall(f"{{{_UNATTEND}}}settings"):
        pass_name = section.get("pass", "")
        for component in section.findall(f"{{{_UNATTEND}}}component"):
            name = component.get("name", "")
            for element in component:
                if (pass_name, name, _local(element)) == (SPECIALISE, _DEPLOYMENT, _COMMANDS):
                    commands.extend(_command(one) for one in element)
                else:
                    settings.setdefault(pass_name, {}).setdefault(name, {}).update(_leaves(element, ""))
    in_order = [command for _, command in sorted(commands, key=lambda pair: pair[0])]
    return AnswerFile(settings=settings, commands=in_order)


def _command(element: ET.Element) -> tuple[int, AnswerCommand]:
    fields = {name: text for child in element for name, text in _leaves(child, "")}
    try:
        command = AnswerCommand.model_validate(
            {"path": fields.get("Path", ""), "will_reboot": fields.get("WillReboot", "Never")}
        )
        return int(fields.get("Order", "")), command
    except (ValueError, pydantic.ValidationError) as error:
        raise RefusedByWindows(f"Windows Setup cannot read a command of its answer file: {error}") from error


def _leaves(element: ET.Element, above: str) -> Iterator[tuple[str, str]]:
    path = f"{above}{_local(element)}"
    if len(element) == 0:
        yield path, (element.text or "").strip()
    for child in element:
        yield from _leaves(child, f"{path}/")


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
