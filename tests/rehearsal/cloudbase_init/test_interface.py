"""The model's layer for the operating system has cloudbase-init's own interface: all names, in their order."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import inspect
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.cloudbase_init.os_layer import CONSTANTS, OsLayer
from imagegen.rehearsal.cloudbase_init.versions import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.rehearsal.cloudbase_init.conftest import Calls

    Parameters = list[tuple[str, object]]

# What the plugins and metadata services of the shipped configuration never call on a node. These fail the boot by name.
REFUSED = {
    "add_network_team_nic",
    "add_static_route",
    "create_network_team",
    "enable_network_adapter",
    "enable_trim",
    "firewall_remove_rule",
    "get_network_adapter_name_by_mac_address",
    "rename_network_adapter",
    "set_service_credentials",
    "set_static_network_config",
    "set_timezone",
}
# Of cloudbase-init's own class for Windows, which has more than the interface.
REFUSED_OF_WINDOWS = {
    "check_sysnative_dir_exists",
    "get_cdrom_drives",
    "get_page_files",
    "get_physical_disks",
    "get_sysnative_dir",
    "get_system32_dir",
    "get_syswow64_dir",
    "get_user_sid",
    "get_volume_path_names_by_mount_point",
    "get_volumes",
    "is_wow64",
    "set_ntp_client_config",
    "set_page_files",
}


@functools.cache
def read_class(file: Path, name: str) -> ast.ClassDef:
    """A class of cloudbase-init. It is read and not imported, because its module needs Windows."""
    with warnings.catch_warnings():
        # Its own texts have escapes that Python does not know.
        warnings.simplefilter("ignore")
        tree = ast.parse(file.read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return found


def _classes(osutils: Path) -> tuple[ast.ClassDef, ast.ClassDef]:
    """The interface, and what cloudbase-init itself has for Windows."""
    return read_class(osutils / "base.py", "BaseOSUtils"), read_class(osutils / "windows.py", "WindowsUtils")


def _constants(found: ast.ClassDef) -> dict[str, object]:
    return {
        target.id: node.value.value
        for node in found.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def list_methods(found: ast.ClassDef, module: Mapping[str, object] | None = None) -> dict[str, Parameters]:
    """The parameters of the public methods, each with its default, or `...` for none. `module` has its constants."""
    constants = {**(module or {}), **_constants(found)}
    methods: dict[str, Parameters] = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert (node.args.vararg, node.args.kwarg, node.args.kwonlyargs) == (None, None, []), node.name
            names = [argument.arg for argument in node.args.args]
            defaults = [
                constants[it.id] if isinstance(it, ast.Name) else ast.literal_eval(it) for it in node.args.defaults
            ]
            methods[node.name] = [*zip(names, [...] * (len(names) - len(defaults)) + defaults, strict=True)][1:]
    return methods


def own_methods(kind: type) -> dict[str, Parameters]:
    """The same of a class of the rehearsal."""
    return {
        name: [
            (parameter.name, ... if parameter.default is parameter.empty else parameter.default)
            for parameter in [*inspect.signature(method).parameters.values()][1:]
        ]
        for name, method in vars(kind).items()
        if not name.startswith("_")
    }


def differences(osutils: Path) -> list[str]:
    """Where the model's layer is not that of the cloudbase-init in a folder."""
    own, refused = own_methods(OsLayer), REFUSED | REFUSED_OF_WINDOWS
    found: list[str] = []
    for kind in _classes(osutils):
        theirs = list_methods(kind)
        assert len(theirs) >= 50
        found += [f"{name} is neither answered nor refused" for name in theirs.keys() - own.keys() - refused]
        found += [f"{name} is not ({theirs[name]})" for name in theirs.keys() & own.keys() if theirs[name] != own[name]]
    constants = _constants(_classes(osutils)[1])
    return found + [f"{name} is not {constants[name]}" for name in CONSTANTS if constants[name] != CONSTANTS[name]]


@pytest.fixture
def installed() -> Path:
    return Path(str(importlib.metadata.distribution(PACKAGE).locate_file("cloudbaseinit/osutils")))


def test_each_method_is_answered_with_the_same_parameters_or_refused(installed: Path) -> None:
    assert differences(installed) == []


def test_nothing_is_answered_or_refused_that_cloudbase_init_does_not_have(installed: Path) -> None:
    base, windows = map(list_methods, _classes(installed))
    assert set(base) >= REFUSED
    assert set(windows) >= REFUSED_OF_WINDOWS
    assert own_methods(OsLayer).keys() <= base.keys() | windows.keys()
    assert (REFUSED | REFUSED_OF_WINDOWS) & own_methods(OsLayer).keys() == set()


@pytest.mark.parametrize("name", sorted(REFUSED | REFUSED_OF_WINDOWS))
def test_what_is_refused_fails_the_boot_by_name(calls: Calls, name: str) -> None:
    found = calls.answer(f"os_{name}")
    assert found["kind"] == "unknown"
    assert f"does not know {name} of cloudbase-init's layer" in found["error"]
    assert calls.around.unknown == [found["error"]]
