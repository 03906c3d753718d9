"""What kubelet of each minor makes of its credential providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.boot.facts import CredentialProvider
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.boot.observe import look_at_credential_providers
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.kubelet_options import check_kubelet, last_values, parse_arguments, registered_providers
from tests.node_support import make_machine

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

FOLDER, FILE = r"C:\var\lib\kubelet\credential-provider", r"C:\var\lib\kubelet\credential-provider-config.yaml"
KUBELET = r"C:\var\lib\kubelet\config.yaml"
FLAGS = (
    f"--config={KUBELET}",
    "--container-runtime-endpoint=npipe:////./pipe/containerd-containerd",
    f"--image-credential-provider-config={FILE}",
    f"--image-credential-provider-bin-dir={FOLDER}",
)
GATE = "--feature-gates=KubeletCredentialProviders="
TEXT = """apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: one
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.example.com"]
  defaultCacheDuration: 1h30m
  args: [a]
  env: [{name: A, value: b}]
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = make_machine(tmp_path, "1.34.2")
    machine.restart()
    machine.files.make_folder(FOLDER)
    machine.files.write(KUBELET, b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    machine.files.write(FILE, TEXT.encode())
    for name in ("one.exe", "one"):
        machine.files.write(rf"{FOLDER}\{name}", b"MZ")
    return machine


def registered(machine: Machine, minor: str, *more: str, text: str = TEXT) -> tuple[str, ...]:
    machine.files.write(FILE, text.encode())
    remote = ["--container-runtime=remote"] if minor < "1.24" else []
    values = last_values(parse_arguments([*FLAGS, *remote, *more], minor))
    check_kubelet(machine, values, minor)
    return registered_providers(machine, values, minor)


def older(version: str) -> str:
    return TEXT.replace("/v1\n", f"/{version}\n")


@pytest.mark.parametrize(
    ("minor", "version"),
    [("1.24", "v1beta1"), ("1.25", "v1alpha1"), ("1.26", "v1"), ("1.29", "v1beta1"), ("1.32", "v1"), ("1.37", "v1")],
)
def test_kubelet_registers_them(machine: Machine, minor: str, version: str) -> None:
    assert registered(machine, minor, text=older(version)) == ("one",)


@pytest.mark.parametrize(
    ("minor", "more", "names"),
    [
        ("1.23", (), ()),
        ("1.23", (f"{GATE}true",), ("one",)),
        ("1.24", (), ("one",)),
        ("1.24", (f"{GATE}false",), ()),
        ("1.27", (f"{GATE}false",), ("one",)),
    ],
)
def test_older_minors_need_the_feature_gate(
    machine: Machine, minor: str, more: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert registered(machine, minor, *more, text=older("v1alpha1")) == names


@pytest.mark.parametrize(
    ("minor", "old", "new", "words"),
    [
        ("1.25", "", "", 'no kind "CredentialProviderConfig" is registered for version "kubelet.config.k8s.io/v1"'),
        ("1.36", "kubelet.config", "kubeadm", "is registered for version"),
        ("1.36", "kind: Cred", "kind: cred", 'no kind "cred'),
        ("1.36", "kind: Cred", "kind: [", "error decoding config"),
        ("1.36", "credentialprovider.kubelet.k8s.io/v1", "v1", 'apiVersion: Unsupported value: "v1"'),
        ("1.36", "  apiVersion: credentialprovider.kubelet.k8s.io/v1\n", "", "apiVersion: Required value"),
        ("1.36", '["*.example.com"]', "[]", "at least 1 item in matchImages is required"),
        ("1.36", '["*.example.com"]', '["https://example.com"]', "match image is invalid"),
        ("1.36", '["*.example.com"]', "[1]", r"cannot unmarshal .* CredentialProvider.matchImages"),
        ("1.36", "  defaultCacheDuration: 1h30m\n", "", "defaultCacheDuration: Required value"),
        ("1.36", "1h30m", "1d", "time: invalid duration '1d'"),
        ("1.36", "1h30m", "-1h", "must be greater than or equal to 0"),
        ("1.36", "1h30m", "1", "cannot unmarshal"),
        ("1.36", "args: [a]", "args: a", "CredentialProvider.args"),
        ("1.36", "value: b", "values: b", "CredentialProvider.env"),
        ("1.36", "name: one", "name: a/b", "cannot contain '/'"),
        ("1.36", "name: one", "name: a b", "cannot contain spaces"),
        ("1.36", "name: one", "name: ..", "provider name cannot be '..'"),
        ("1.36", "name: one", "name: two", r"plugin binary executable .*two did not exist"),
        ("1.36", "  args", "  arguments: [a]\n  args", "strict decoding error: unknown field 'providers.0..arguments'"),
        ("1.36", "kind:", "more: 1\nkind:", "strict decoding error: unknown field 'more'"),
        ("1.36", TEXT[TEXT.index("- name") :], "", "at least 1 item in plugins is required"),
        ("1.36", TEXT[TEXT.index("providers:") :], "providers: 1\n", "CredentialProviderConfig.providers"),
        ("1.36", TEXT[TEXT.index("- name") :], TEXT[TEXT.index("- name") :] * 2, 'Duplicate value: "one"'),
    ],
)
def test_kubelet_ends(machine: Machine, minor: str, old: str, new: str, words: str) -> None:
    text = TEXT.replace(old, new, 1) if old else TEXT
    assert (text == TEXT) == (not old)
    with pytest.raises(KubeletError, match=words) as ended:
        registered(machine, minor, text=text)
    assert str(ended.value).startswith("Failed to register CRI auth plugins: ")


def test_unknown_fields_are_an_error_from_1_32_on(machine: Machine) -> None:
    text = TEXT.replace("  args", "  arguments: [a]\n  args")
    assert registered(machine, "1.31", text=text) == ("one",)
    with pytest.raises(KubeletError, match="strict decoding error"):
        registered(machine, "1.32", text=text)


def test_what_has_no_model_is_refused_by_name(machine: Machine) -> None:
    with pytest.raises(UnknownCommandError, match="tokenAttributes"):
        registered(machine, "1.36", text=TEXT + "  tokenAttributes: {}\n")


@pytest.mark.parametrize(
    ("minor", "gone", "registers", "can_run"),
    [
        ("1.29", "one", False, False),
        ("1.29", "one.exe", True, False),
        ("1.30", "one", True, True),
        ("1.30", "one.exe", False, False),
    ],
)
def test_which_files_a_minor_needs(machine: Machine, minor: str, gone: str, registers: bool, can_run: bool) -> None:
    """Before 1.30 it registers the name without .exe, and Windows runs the one with it."""
    machine.files.remove(rf"{FOLDER}\{gone}")
    if not registers:
        with pytest.raises(KubeletError, match="did not exist"):
            registered(machine, minor)
    (found,) = look_at_credential_providers(machine, ["one"], FLAGS, minor)
    assert found == CredentialProvider(name="one", is_registered=registers, can_run=can_run)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (FLAGS[:3], "plugin binary directory  did not exist"),
        ((*FLAGS[:2], FLAGS[3]), "credential provider config path is empty"),
        (
            (*FLAGS[:3], r"--image-credential-provider-bin-dir=C:\none"),
            r"plugin binary directory C:\\none did not exist",
        ),
        ((*FLAGS[:2], FLAGS[3], r"--image-credential-provider-config=C:\none"), "unable to read external registry"),
    ],
)
def test_a_flag_that_names_nothing_ends_kubelet(machine: Machine, arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(KubeletError, match=words):
        check_kubelet(machine, last_values(parse_arguments(arguments, "1.36")), "1.36")


@pytest.mark.parametrize("arguments", [(), FLAGS[:2]])
def test_without_flags_there_is_none(machine: Machine, arguments: tuple[str, ...]) -> None:
    (found,) = look_at_credential_providers(machine, ["one"], arguments, "1.36")
    assert found == CredentialProvider(name="one", is_registered=False, can_run=False)
