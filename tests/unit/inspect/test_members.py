"""Which file of an archive is taken, whatever its layout, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagegen.base.errors import VerificationError
from imagegen.fetch.request import ArtifactRequest, TakenFile
from imagegen.inspect.members import (
    NotInArchiveError,
    check_files,
    describe,
    find_ambiguous,
    find_folder,
    find_member,
)

A, B = "a" * 64, "b" * 64


def taken(path: str) -> TakenFile:
    """A file that has its own name on the machine."""
    return TakenFile(path, path.rpartition("/")[2])


NSSM = "nssm-2.24/win64/nssm.exe"
NODE = {f"kubernetes/node/bin/{name}.exe": digest for name, digest in (("kubelet", A), ("kubeadm", B))}


@pytest.mark.parametrize(
    ("members", "path", "found"),
    [
        ({"kubelet.exe": A}, "kubelet.exe", "kubelet.exe"),
        (NODE, "kubelet.exe", "kubernetes/node/bin/kubelet.exe"),
        ({"k/Kubelet.EXE": A}, "kubelet.exe", "k/Kubelet.EXE"),
        ({"deep/er/kubelet.exe": A, "k/kubelet.exe": A}, "kubelet.exe", "k/kubelet.exe"),
        (NODE, "kubernetes/node/bin/kubelet.exe", "kubernetes/node/bin/kubelet.exe"),
        ({"signed/kubelet.exe": A}, "kubernetes/node/bin/kubelet.exe", "signed/kubelet.exe"),
        # The architecture is in the folder.
        ({"nssm-2.24/win32/nssm.exe": A, NSSM: B}, NSSM, NSSM),
        ({"own/win32/nssm.exe": A, "own/win64/nssm.exe": B}, NSSM, "own/win64/nssm.exe"),
    ],
)
def test_a_file_is_found_by_its_name(members: dict[str, str], path: str, found: str) -> None:
    assert find_member(members, taken(path)) == found


def test_a_file_may_have_its_name_on_the_machine() -> None:
    """flannel-amd64.exe is flannel.exe on a node."""
    plugin = TakenFile("flannel-amd64.exe", "flannel.exe")
    assert find_member({"x/flannel.exe": A}, plugin) == "x/flannel.exe"
    assert find_member({"x/flannel.exe": A, "flannel-amd64.exe": B}, plugin) == "flannel-amd64.exe"


@pytest.mark.parametrize(
    ("members", "path", "says"),
    [
        ({}, "kubelet.exe", "does not have kubelet.exe: it is empty"),
        (NODE, "kubectl.exe", "does not have kubectl.exe: it has kubernetes/node/bin/kubeadm.exe, kubernetes/"),
        ({"xkubelet.exe": A}, "kubelet.exe", "does not have kubelet.exe: it has xkubelet.exe"),
        (
            {"inner.zip": A},
            "kubelet.exe",
            "does not have kubelet.exe: it has inner.zip; imagegen does not open an archive in an archive",
        ),
        (
            {"new/kubelet.exe": A, "old/kubelet.exe": B},
            "kubelet.exe",
            "has different files with the name kubelet.exe: new/kubelet.exe, old/kubelet.exe",
        ),
        (
            {"own/win32/nssm.exe": A, "own/arm/nssm.exe": B},
            NSSM,
            "has different files with the name nssm.exe: own/arm/nssm.exe, own/win32/nssm.exe",
        ),
        # The path of the published archive, and even its folder, are no reason to prefer one of two.
        (
            {"kubernetes/node/bin/kubelet.exe": A, "x/kubelet.exe": B},
            "kubernetes/node/bin/kubelet.exe",
            "has different files with the name kubelet.exe: x/kubelet.exe, kubernetes/node/bin/kubelet.exe",
        ),
        (
            {NSSM: A, "old/win64/nssm.exe": B},
            NSSM,
            "has different files with the name nssm.exe: nssm-2.24/win64/nssm.exe, old/win64/nssm.exe",
        ),
    ],
)
def test_none_and_two_different_files_are_refused(members: dict[str, str], path: str, says: str) -> None:
    with pytest.raises(NotInArchiveError) as raised:
        find_member(members, taken(path))
    assert str(raised.value).startswith(says)


def test_a_program_of_the_config_may_have_another_name_if_it_is_alone() -> None:
    """Microsoft's azure-acr-credential-provider.exe is the provider acr-credential-provider of kubelet."""
    alone = {"azure-acr-credential-provider.exe": A, "LICENSE": B}
    wanted = taken("acr-credential-provider.exe")
    assert find_member(alone, wanted, any_name=True) == "azure-acr-credential-provider.exe"
    with pytest.raises(NotInArchiveError, match=r"does not have acr-credential-provider.exe"):
        find_member(alone, wanted)
    with pytest.raises(NotInArchiveError, match=r"does not have x\.exe: it has a\.exe, b\.exe"):
        find_member({"a.exe": A, "b.exe": B}, taken("x.exe"), any_name=True)


@pytest.mark.parametrize(
    ("members", "paths", "found"),
    [
        ({"bin/a.exe": A, "bin/b.exe": B}, ["a.exe", "b.exe"], "bin/"),
        ({"a.exe": A, "b.exe": B}, ["a.exe", "b.exe"], ""),
        ({"x/y/bin/a.exe": A, "x/y/bin/b.exe": B}, ["a.exe", "b.exe"], "x/y/bin/"),
        ({"x/node/s.ps1": A, "x/a.exe": B}, ["a.exe", "node/s.ps1"], "x/"),
        # The same file twice: the folder with all of them counts.
        ({"one/a.exe": A, "two/a.exe": A, "two/b.exe": B}, ["a.exe", "b.exe"], "two/"),
        ({"one/a.exe": A, "two/b.exe": B}, ["a.exe", "b.exe"], None),
    ],
)
def test_the_folder_of_all_files_is_found(members: dict[str, str], paths: list[str], found: str | None) -> None:
    assert find_folder(members, paths) == found


def test_a_folder_without_a_file_is_refused_with_all_that_is_missing() -> None:
    with pytest.raises(NotInArchiveError) as raised:
        find_folder({"bin/a.exe": A, "README": B}, ["a.exe", "b.exe", "c.exe"])
    assert str(raised.value) == "does not have b.exe, c.exe: it has bin/a.exe, README"
    with pytest.raises(NotInArchiveError, match=r"has different files with the name a.exe: bin/a.exe, old/x/a.exe"):
        find_folder({"bin/a.exe": A, "old/x/a.exe": B}, ["a.exe"])


def test_programs_that_nothing_tells_apart() -> None:
    assert find_ambiguous({"a/kubelet.exe": A, "b/Kubelet.exe": B, "c/kubeadm.exe": A, "kubeadm.exe": A}) == {
        "kubelet.exe": ["a/kubelet.exe", "b/Kubelet.exe"]
    }
    assert find_ambiguous({"nssm-2.24/win32/nssm.exe": A, NSSM: B, "a/x.ps1": A, "b/x.ps1": B}) == {}


def test_a_long_list_is_cut() -> None:
    members = {f"{number:02}.exe": A for number in range(20)}
    assert describe(members) == f"it has {', '.join(sorted(members)[:12])} and 8 more"


def test_the_lock_refuses_an_archive_without_the_file() -> None:
    url = "https://example.com/k.zip?sig=secret"
    request = ArtifactRequest(
        "kubelet", url, None, "file", "overrides.kubelet_url", url, own=True, files=(taken("kubelet.exe"),)
    )
    check_files(request, {"bin/kubelet.exe": A})
    with pytest.raises(VerificationError) as raised:
        check_files(request, NODE | {"kubelet.exe": B})
    assert raised.value.message == (
        "kubelet: the archive https://example.com/k.zip has different files with the name kubelet.exe: "
        "kubelet.exe, kubernetes/node/bin/kubelet.exe"
    )
    assert raised.value.hint == (
        "set overrides.kubelet_url to an archive that has one kubelet.exe, or to the URL of the file itself"
    )


NAMES = st.sampled_from(["kubelet.exe", "KUBELET.EXE", "kubeadm.exe", "notes.txt"])
PATHS = st.lists(st.sampled_from(["a", "bin", "node"]), max_size=3)


@given(
    st.dictionaries(st.builds(lambda folders, name: "/".join([*folders, name]), PATHS, NAMES), st.sampled_from([A, B]))
)
def test_what_is_found_has_the_only_bytes_of_that_name(members: dict[str, str]) -> None:
    named = {digest for path, digest in members.items() if path.rpartition("/")[2].lower() == "kubelet.exe"}
    try:
        found = find_member(members, taken("kubelet.exe"))
    except NotInArchiveError:
        assert len(named) != 1
    else:
        assert {members[found]} == named
