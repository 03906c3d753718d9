"""What the manifest of a rehearsal says that it did not check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.rehearse import _make_note
from imagegen.rehearsal.winrm.observations import Cost
from tests.conftest import REPOSITORY, load_today

if TYPE_CHECKING:
    from pydantic import JsonValue

NO_COST = Cost(0, 0, 0, 0, 0, 0)


def not_checked(file: str) -> list[JsonValue]:
    spec = load_today(REPOSITORY / file).specs["aws"]
    found = _make_note(spec, NO_COST, boots=False)["not_checked"]
    assert isinstance(found, list)
    return found


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
