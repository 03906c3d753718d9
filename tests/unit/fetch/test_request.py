"""What a base URL is, which address each file gets, and which templates are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagegen.fetch.request import find_faults, find_form, make_url

HOST = "https://packages.example.com"
ONE_EACH = f"{HOST}/{{name}}/{{version}}/windows/amd64/{{name}}_{{version}}-1_amd64.zip"
KNOWN = ("name", "version")


@pytest.mark.parametrize(
    ("base", "form", "url"),
    [
        (HOST, "folder", f"{HOST}/bin/kubelet.exe"),
        (f"{HOST}/", "folder", f"{HOST}/bin/kubelet.exe"),
        (f"{HOST}/v1.zip/x", "folder", f"{HOST}/v1.zip/x/bin/kubelet.exe"),
        (ONE_EACH, "template", f"{HOST}/kubelet/1.35.2/windows/amd64/kubelet_1.35.2-1_amd64.zip"),
        (f"{HOST}/{{name}}.exe", "template", f"{HOST}/kubelet.exe"),
        (f"{HOST}/v1.35.2-1int.zip", "archive", f"{HOST}/v1.35.2-1int.zip"),
        (f"{HOST}/kubernetes-node-windows-amd64.tar.gz", "archive", f"{HOST}/kubernetes-node-windows-amd64.tar.gz"),
        (f"{HOST}/node.TGZ", "archive", f"{HOST}/node.TGZ"),
    ],
)
def test_each_form_has_its_addresses(base: str, form: str, url: str) -> None:
    assert find_form(base) == form
    assert make_url(base, "bin/kubelet.exe", "1.35.2") == url


def test_a_name_without_exe_keeps_its_ending() -> None:
    assert make_url(f"{HOST}/{{name}}", "windows/collectlogs.ps1", None) == f"{HOST}/collectlogs.ps1"


@pytest.mark.parametrize(
    ("template", "known", "messages"),
    [
        (ONE_EACH, KNOWN, []),
        (f"{HOST}/{{name}}", ("name",), []),
        (f"{HOST}/{{name}}/{{version}}", ("name",), ["unknown placeholder {version}"]),
        (f"{HOST}/{{name}}/{{}}", KNOWN, ["unknown placeholder {}"]),
        (
            f"{HOST}/{{arch}}/{{os}}/{{arch}}/{{name}}",
            KNOWN,
            ["unknown placeholder {arch}", "unknown placeholder {os}"],
        ),
        (f"{HOST}/{{version}}", KNOWN, ["the template has no {name}, so all files would have one URL"]),
        (f"{HOST}/{{name", KNOWN, ['the brace "{" has no closing brace']),
        (f"{HOST}/{{name}}}}", KNOWN, ['the brace "}" has no opening brace']),
        (f"{HOST}/{{{{name}}", KNOWN, ['the brace "{" has no closing brace']),
    ],
)
def test_a_template_that_cannot_work_is_refused(template: str, known: tuple[str, ...], messages: list[str]) -> None:
    assert [message for message, _ in find_faults(template, known)] == messages
    assert all(hint for _, hint in find_faults(template, known))


@given(
    st.lists(st.sampled_from(["{", "}", "{name}", "{version}", "{other}", "a", "/"]), max_size=8).map("".join),
    st.sampled_from(["kubelet.exe", "x/kube-log-runner.exe"]),
)
def test_a_template_without_faults_leaves_no_brace(tail: str, path: str) -> None:
    base = f"{HOST}/{tail}"
    if find_form(base) == "template":
        url = make_url(base, path, "1.36.2")
        assert ("{" in url or "}" in url) <= bool(list(find_faults(base, KNOWN)))
