"""The SDK against the small Resource Manager, with no socket between them: before a build, and after one."""

from __future__ import annotations

import dataclasses
import datetime
import io
import urllib.parse
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import requests

from imagegen.base.console import Console
from imagegen.base.errors import RefusedError
from imagegen.build.doctor import reject_failed_checks
from imagegen.leftovers import sweep
from imagegen.leftovers.journal import Entry, read_runs, recorded
from imagegen.leftovers.sweep import warn_of_leftovers
from imagegen.providers.azure import provider
from imagegen.providers.azure.settings import Settings
from imagegen.rehearsal.clouds.azure.cloud import Azure, AzureOptions
from imagegen.rehearsal.clouds.azure.options import ExistingGroup, GalleryDefinition
from imagegen.rehearsal.network.messages import Request, parse_target
from imagegen.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.leftovers.journal import RecordedRun
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import Leftover
    from imagegen.settle.spec import Spec

VAULT = "image-builds"
DEAD, LIVING = "20261118t100000z-1a2b3c", "20261118t100000z-4d5e6f"
SECRET = f"imagegen-{DEAD}"
DELETE_IT = f"az keyvault secret delete --vault-name {VAULT} --name {SECRET}"


class Stage:
    """The stand-in of Azure, which the process's own HTTP reaches, and the messages of the console."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **definition: str) -> None:
        wanted = GalleryDefinition("images", "gal", "def", **definition)
        groups = (ExistingGroup("builds", key_vault=VAULT),)
        self.azure = Azure(AzureOptions(definitions=(wanted,), groups=groups), lambda _: None)
        self.said = io.StringIO()
        self.console = Console(self.said, plain=True)
        self.asked: list[str] = []
        monkeypatch.setattr(requests.Session, "request", self._answer)

    @property
    def run(self) -> Run:
        return Run(self.azure.credentials, {}, "2026-11-18T10:00:00Z", DEAD, console=self.console)

    def ask(self, method: str, host: str, target: str, headers: dict[str, str], body: bytes) -> requests.Response:
        path, query = parse_target(target)
        lower = {name.lower(): value for name, value in headers.items()}
        answer = self.azure(Request(method, host, path, query, lower, body, target))
        assert answer.fault == ""
        made = requests.Response()
        made.status_code, made.reason, made.url = answer.status, "", f"https://{host}{target}"
        made.headers.update(dict(answer.headers))
        made.raw = io.BytesIO(answer.body)
        return made

    def _answer(self, method: str, url: str, **named: Any) -> requests.Response:  # noqa: ANN401 - as requests has them
        parts = urllib.parse.urlsplit(url)
        data = named.get("data") or b""
        if isinstance(data, dict):
            data = urllib.parse.urlencode(data)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self.asked.append(f"{method} {parts.netloc}{parts.path}")
        body = data.encode() if isinstance(data, str) else data
        return self.ask(method, parts.netloc, target, dict(named.get("headers") or {}), body)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


GALLERY = {"resource_group": "images", "name": "gal", "definition": "def"}


def settings_of(**settings: Any) -> Settings:  # noqa: ANN401 - any of Azure's settings
    return Settings.model_validate({"location": "westeurope", "gallery": GALLERY, **settings})


def plan_of(**settings: Any) -> BuildPlan[Settings]:  # noqa: ANN401 - as above
    image = SimpleNamespace(versions={"kubernetes": "1.35.6"})
    return cast("BuildPlan[Settings]", SimpleNamespace(image=image, settings=settings_of(**settings)))


def test_two_runs_of_one_second_build_two_versions(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    chances = iter([17, 512])
    monkeypatch.setattr("secrets.randbelow", lambda limit: next(chances) % limit)
    numbers = [provider.build_variables(plan_of(), stage.run)["gallery_image_version"] for _ in range(2)]
    assert numbers == ["2026.1118.100000017", "2026.1118.100000512"]


def spec_of(**settings: Any) -> Spec:  # noqa: ANN401 - any of Azure's settings
    return cast("Spec", SimpleNamespace(target="azure", provider="azure", settings=settings_of(**settings)))


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"os_type": "Linux"}, "its OS type is Linux"),
        ({"os_state": "Specialized"}, "its OS state is Specialized"),
        ({"generation": "V1"}, "its Hyper-V generation is V1"),
        ({"architecture": "Arm64"}, "its architecture is Arm64"),
        ({"security_type": "TrustedLaunch"}, "its security type is TrustedLaunch"),
    ],
)
def test_a_build_for_another_kind_of_definition_is_refused_before_it_begins(
    definition: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, **definition)
    with pytest.raises(RefusedError, match="azure would fail this build") as raised:
        reject_failed_checks(spec_of(), stage.run)
    assert [message in problem.message for problem in raised.value.problems] == [True]
    assert raised.value.exit_code == 5
    assert [asked.partition(" ")[0] for asked in stage.asked if "management" in asked] == ["GET", "GET", "GET"]


def test_a_build_that_may_fail_at_the_capture_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, security_type="TrustedLaunchSupported")
    reject_failed_checks(spec_of(), stage.run)
    said = stage.said.getvalue()
    assert "warning: image definition gal/def: unknown: its security type is TrustedLaunchSupported" in said


def test_a_definition_that_is_not_there_is_wrong_and_hides_no_region(stage: Stage) -> None:
    spec = spec_of(
        gallery={"resource_group": "images", "name": "gal", "definition": "other"}, publish={"regions": ["westus9"]}
    )
    with pytest.raises(RefusedError) as raised:
        reject_failed_checks(spec, stage.run)
    assert [problem.file for problem in raised.value.problems] == [
        "image definition gal/other",
        "publish region westus9",
    ]


def test_a_run_has_a_secret_of_its_own_in_a_vault_that_is_there(stage: Stage) -> None:
    plan = plan_of(key_vault=VAULT, build_resource_group="builds")
    names = [
        provider.build_variables(plan, dataclasses.replace(stage.run, id=name))["key_vault_secret"]
        for name in (DEAD, LIVING)
    ]
    assert names == [SECRET, f"imagegen-{LIVING}"]
    assert "key_vault_secret" not in provider.build_variables(plan_of(), stage.run)


def put_secret(stage: Stage, name: str = SECRET) -> int:
    """As newer plugins do: through the Resource Manager."""
    known = stage.azure.application
    form = {"grant_type": "client_credentials", "client_id": known.client_id, "client_secret": known.secret}
    body = urllib.parse.urlencode({**form, "scope": "https://management.azure.com/.default"}).encode()
    login = stage.ask("POST", "login.microsoftonline.com", f"/{known.tenant}/oauth2/v2.0/token", {}, body)
    bearer = {"authorization": f"Bearer {login.json()['access_token']}"}
    vault = f"/subscriptions/{known.subscription}/resourceGroups/builds/providers/Microsoft.KeyVault/vaults/{VAULT}"
    target = f"{vault}/secrets/{name}?api-version=2023-07-01"
    made = stage.ask("PUT", "management.azure.com", target, bearer, b'{"properties": {"value": "certificate"}}')
    return made.status_code


def test_the_builders_certificate_goes_from_the_vault(stage: Stage) -> None:
    plan, variables = plan_of(key_vault=VAULT, build_resource_group="builds"), {"key_vault_secret": SECRET}
    assert put_secret(stage) == 200
    provider.clean_up(plan, variables, stage.run, stage.console)
    # A vault keeps what is deleted, and with it the name: hence one of each run's own.
    assert put_secret(stage) == 409
    # A build that ended before it had a certificate.
    provider.clean_up(plan, variables, stage.run, stage.console)
    assert stage.asked.count(f"DELETE {VAULT}.vault.azure.net/secrets/{SECRET}") == 2
    assert stage.said.getvalue() == ""


def test_a_certificate_that_may_not_be_deleted_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, variables = plan_of(key_vault=VAULT, build_resource_group="builds"), {"key_vault_secret": SECRET}
    put_secret(stage)
    vaults = "imagegen.rehearsal.clouds.azure.vaults"
    monkeypatch.setattr(f"{vaults}._permits", lambda _policy, _who, permission: permission != "delete")
    provider.clean_up(plan, variables, stage.run, stage.console)
    said = stage.said.getvalue()
    assert f"deleting the builder's certificate from the key vault {VAULT}: Forbidden: " in said
    assert f"run `{DELETE_IT}`" in said


# Of a plain Packer; and what other people have in their vault.
PLAIN = "imagegen-20261118t100000z-packer-11111111-1111-4111-8111-111111111111"
OTHERS = ("backup", f"x-{SECRET}", f"{SECRET}-x", "imagegen-20261399t100000z-1a2b3c", "imagegen-" + "1" * 8)


def secrets_left(stage: Stage, name: str = VAULT) -> dict[str, Leftover]:
    settings = settings_of(key_vault=name, build_resource_group="builds")
    found = provider.leftovers(provider.place(settings, stage.run), stage.run, None).leftovers
    return {each.name.partition("/")[2]: each for each in found if each.kind == "key vault secret"}


def test_the_certificate_of_a_run_that_was_killed_is_found_by_its_name(stage: Stage) -> None:
    assert {put_secret(stage, name) for name in (SECRET, PLAIN, *OTHERS)} == {200}
    found = secrets_left(stage)
    assert {name: (each.run_id, each.expires_at) for name, each in found.items()} == {
        SECRET: (DEAD, "2026-11-25T10:00:00Z"),
        PLAIN: ("20261118t100000z-packer", "2026-11-25T10:00:00Z"),
    }
    # A vault that was deleted since hides nothing else.
    assert secrets_left(stage, "gone") == {}


def journals_of(stage: Stage, out: Path) -> Callable[[], list[RecordedRun]]:
    """Two runs of this machine: one lives, as its lock says, and the other was killed."""
    place = provider.place(settings_of(key_vault=VAULT, build_resource_group="builds"), stage.run)
    entry = Entry(DEAD, "azure", "0", place.model_dump(), "2026-11-18T10:00:00Z", "2026-11-19T10:00:00Z")
    folder = out / "x" / "journal"
    with recorded(folder, entry, pytest.fail):
        pass
    # What it wrote before it was killed.
    file = folder / f"{DEAD}.jsonl"
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    return lambda: read_runs(out, pytest.fail)


def test_the_next_build_names_a_dead_runs_certificate_and_the_janitor_deletes_it(stage: Stage, tmp_path: Path) -> None:
    read = journals_of(stage, tmp_path)
    assert {put_secret(stage, name) for name in (SECRET, f"imagegen-{LIVING}", *OTHERS)} == {200}
    warn_of_leftovers(dataclasses.replace(stage.run, out=tmp_path))
    assert f"/vaults/{VAULT}/secrets/{SECRET}: `imagegen janitor" in stage.said.getvalue()
    assert LIVING not in stage.said.getvalue()
    soon = datetime.datetime(2026, 11, 18, 11, tzinfo=datetime.UTC)
    swept = sweep.clean_up(sweep.places_of(read()), read, dataclasses.replace(stage.run, clock=lambda: soon), 50)
    assert [(outcome.leftover.name, outcome.is_removed) for outcome in swept.outcomes] == [
        (f"{VAULT}/{SECRET}", True),
        (f"{VAULT}/imagegen-{LIVING}", False),
    ]
    assert list(secrets_left(stage)) == [f"imagegen-{LIVING}"]


@pytest.mark.parametrize(("day", "left"), [(24, [SECRET]), (26, [])])
def test_another_machine_deletes_a_certificate_when_no_build_can_need_it(
    stage: Stage, day: int, left: list[str]
) -> None:
    put_secret(stage)
    place = provider.place(settings_of(key_vault=VAULT, build_resource_group="builds"), stage.run)
    now = datetime.datetime(2026, 11, day, tzinfo=datetime.UTC)
    run = dataclasses.replace(stage.run, clock=lambda: now)
    sweep.clean_up([sweep.Place("azure", "azure", place.model_dump())], list, run, 50)
    assert list(secrets_left(stage)) == left


def test_a_certificate_that_the_janitor_may_not_delete_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    put_secret(stage)
    vaults = "imagegen.rehearsal.clouds.azure.vaults"
    monkeypatch.setattr(f"{vaults}._permits", lambda _policy, _who, permission: permission != "delete")
    place = provider.place(settings_of(key_vault=VAULT, build_resource_group="builds"), stage.run)
    found = list(secrets_left(stage).values())
    [(_, why_not)] = provider.remove(place, found, stage.run)
    assert "Forbidden" in why_not


def test_nothing_is_cleaned_up_where_packer_made_the_vault(stage: Stage) -> None:
    provider.clean_up(plan_of(), {}, stage.run, stage.console)
    assert stage.asked == []


def test_builds_of_one_fixed_number_claim_the_same_and_others_nothing(stage: Stage) -> None:
    run = stage.run
    assert provider.claim(plan_of(), run) == ""
    fixed, same, other, kubernetes = (
        plan_of(gallery={**GALLERY, "version": "1.2.3", **gallery})
        for gallery in (
            {},
            {"name": "GAL", "definition": "Def"},
            {"definition": "other"},
            {"resource_group": "Images", "version": "kubernetes"},
        )
    )
    subscription = stage.azure.application.subscription
    assert provider.claim(fixed, run) == f"version 1.2.3 of {subscription}/images/gal/def" == provider.claim(same, run)
    assert provider.claim(other, run) == f"version 1.2.3 of {subscription}/images/gal/other"
    assert provider.claim(kubernetes, run) == f"version 1.35.6 of {subscription}/images/gal/def"
