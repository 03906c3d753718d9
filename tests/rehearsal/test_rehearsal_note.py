"""What the manifest of a rehearsal says that it did not check."""

from __future__ import annotations

from imagegen.rehearsal.rehearse import _list_unchecked
from tests.conftest import REPOSITORY, load_today


def not_checked(file: str) -> list[str]:
    return _list_unchecked(load_today(REPOSITORY / file), "aws", boots=False)


def test_credentials_that_were_invented_are_named() -> None:
    private = "that the hosts of private artifacts accept your credentials: stand-ins were used"
    assert private in not_checked("tests/golden/maximal.yaml")
    assert private not in not_checked("tests/rules/base.yaml")


def test_each_script_of_the_operator_is_named() -> None:
    plain = not_checked("tests/rules/base.yaml")
    assert not_checked("tests/data/own-files/config.yaml") == [
        *plain,
        "what your script scripts/label.ps1 does: the model machine took it as run and did not run it",
        "what your script scripts/prepare.ps1 does: the model machine took it as run and did not run it",
    ]
    assert len(plain) >= 5


def test_the_certificates_of_signatures_are_named() -> None:
    (said,) = set(not_checked("configs/signed-artifacts.yaml")) - set(not_checked("tests/rules/base.yaml"))
    assert str(said).startswith("that your certificates have signed the artifacts, and that Windows trusts them")


def test_each_script_of_the_steps_is_named() -> None:
    told = not_checked("configs/windows-2022-containerd.yaml")[0]
    assert told.startswith("what imagegen's own scripts do on Windows, which were taken as run: the engine, ")
    assert told.endswith("first-boot.ps1, reset-node.ps1, rotate-logs.ps1, start-kubelet.ps1")
