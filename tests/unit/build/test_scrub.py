from __future__ import annotations

import pytest

from imagegen.build.output import scrub


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("https://a.example/x?sv=1&sig=ab%2Fcd%3D&se=2", "https://a.example/x?sv=1&sig=***&se=2"),
        ("get 'https://a/x?X-Amz-Signature=00ff'", "get 'https://a/x?X-Amz-Signature=***'"),
        ("X-Amz-Security-Token=IQoJ//+=&x=1", "X-Amz-Security-Token=***&x=1"),
        ("x-amz-credential=AKIA%2F2026&y", "x-amz-credential=***&y"),
        ("https://me:pass@h.example/p", "https://***@h.example/p"),
        ("http://token@proxy:3128 http://plain/", "http://***@proxy:3128 http://plain/"),
        ('winrm_password = "a \\"b\\" c", next', "winrm_password = ***, next"),
        ('{"winrm_password": "abc"}', '{"winrm_password": ***}'),
        ("winrm_password=hunter2 ok", "winrm_password=*** ok"),
        ("WinRMPassword: hunter2", "WinRMPassword: ***"),
        ("Authorization: Bearer eyJhbGciOi.x-y_z", "Authorization: Bearer ***"),
        ("the value-12345 of the environment", "the *** of the environment"),
        ("design=1, user@example.org, C:\\k\\x, sign here, Basic tests", None),
        ("https://dl.k8s.io/v1.35.0/kubelet.exe?a=b#c", None),
    ],
)
def test_secrets_go_and_all_else_stays(line: str, clean: str | None) -> None:
    assert scrub(line, ("value-12345",)) == (line if clean is None else clean)
