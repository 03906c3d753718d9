"""The Resource Manager asked directly: pages, what is missing, what is refused, how long a removal is waited for."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from types import SimpleNamespace
from typing import Any, cast

# Here, because its import asks `uname`, which code under test may not.
import azure.identity  # noqa: F401
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)

from imagegen.base.errors import RefusedError
from imagegen.leftovers import sweep
from imagegen.providers import Leftover, RunFacts
from imagegen.providers.azure import leftovers as remains
from imagegen.providers.azure import provider
from imagegen.providers.azure.client import HOST, Arm
from imagegen.providers.azure.leftovers import (
    DELETED_VAULT,
    DEPLOYMENT,
    GROUP,
    VERSION,
    find,
    find_deleted_vaults,
)
from imagegen.providers.azure.settings import Place
from imagegen.providers.tags import EXPIRES_AT, RUN_ID
from imagegen.providers.time_limits import Clock

MACHINE = "virtual machine"


class Manager:
    """Answers each method and path with what is next for it; the last answer stays."""

    def __init__(self, **answers: list[tuple[int, dict[str, Any]]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def send_request(self, request: Any) -> Any:  # noqa: ANN401 - the SDK's request and response
        target = request.url.removeprefix(HOST)
        self.asked.append(f"{request.method} {target}")
        waiting = self.answers[f"{request.method}_{target.partition('?')[0].rpartition('/')[2]}"]
        status, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        content = json.dumps(body).encode()
        return SimpleNamespace(
            status_code=status,
            reason="",
            headers={},
            content=content,
            json=lambda: body,
            text=content.decode,
            body=lambda: content,
            content_type="application/json",
        )

    @property
    def arm(self) -> Arm:
        return Arm(cast("Any", self), "sub")


def leftover(kind: str, name: str) -> Leftover:
    return Leftover(kind, f"/x/{name}", "westeurope", name, "", "run", "", "")


def no_secret(vault: str, name: str) -> None:
    pytest.fail(f"{vault}/{name} is deleted")


def remove(manager: Manager, *leftovers: Leftover) -> list[tuple[str, str]]:
    pauses: list[float] = []
    clock = Clock(now=lambda: sum(pauses), pause=pauses.append)
    return [(each.name, why_not) for each, why_not in remains.remove(manager.arm, leftovers, clock, no_secret)]


def test_a_collection_is_read_to_its_last_page() -> None:
    following = f"{HOST}/x/groups?api-version=1&$skiptoken=2"
    manager = Manager(GET_groups=[(200, {"value": [{"id": 1}], "nextLink": following}), (200, {"value": [{"id": 2}]})])
    assert list(manager.arm.listed("/x/groups", "1")) == [{"id": 1}, {"id": 2}]
    assert manager.asked == ["GET /x/groups?api-version=1", "GET /x/groups?api-version=1&$skiptoken=2"]


@pytest.mark.parametrize("start", [f"{HOST}:443", "https://Management.Azure.com", ""])
def test_the_next_page_is_found_however_its_host_is_written(start: str) -> None:
    link = f"{start}/x/groups?api-version=1&$skiptoken=a%2Bb"
    manager = Manager(GET_groups=[(200, {"value": [{"id": 1}], "nextLink": link}), (200, {"value": [{"id": 2}]})])
    assert list(manager.arm.listed("/x/groups", "1")) == [{"id": 1}, {"id": 2}]
    assert manager.asked[1] == "GET /x/groups?api-version=1&$skiptoken=a%2Bb"


@pytest.mark.parametrize(
    "start", ["https://management.azure.com.example.org", "http://management.azure.com", "//other"]
)
def test_the_next_page_of_another_host_is_not_asked_for(start: str) -> None:
    manager = Manager(GET_groups=[(200, {"value": [], "nextLink": f"{start}/x/groups"})])
    with pytest.raises(RefusedError, match=r"the next page of Azure's answer is at .*/x/groups, which is not below"):
        list(manager.arm.listed("/x/groups", "1"))
    assert len(manager.asked) == 1


def test_a_collection_that_is_not_there_is_empty_and_one_that_is_refused_is_an_error() -> None:
    assert list(Manager(GET_groups=[(404, {})]).arm.listed("/x/groups", "1")) == []
    refused = Manager(GET_groups=[(403, {"error": {"code": "AuthorizationFailed", "message": "no"}})])
    with pytest.raises(HttpResponseError) as raised:
        list(refused.arm.listed("/x/groups", "1"))
    assert raised.value.error is not None
    assert raised.value.error.code == "AuthorizationFailed"


PLACE = Place.model_validate(
    {
        "auth": {"subscription_id": "sub"},
        "location": "westeurope",
        "build_resource_group": "builds",
        "resource_group": "images",
        "gallery": "gal",
        "definition": "def",
    }
)
TAGS = {RUN_ID: "run", EXPIRES_AT: "2026-11-18T16:00:00Z"}
DENIED = {"error": {"code": "AuthorizationFailed", "message": "no"}}
OWN_GROUP = {
    **{"id": "/g", "name": "pkr-Resource-Group-abcdefghij", "tags": TAGS},
    "properties": {"provisioningState": "Succeeded"},
}
OWN_DEPLOYMENT = {"id": "/d/d1", "name": "pkrdpabcdefghij", "properties": {"provisioningState": "Running"}}
OWN_DISK = {"id": "/x/disk", "name": "pkrosabcdefghij", "type": "Microsoft.Compute/disks"}
OWN_MACHINE = {"id": "/x/vm", "name": "pkrvmabcdefghij", "type": "Microsoft.Compute/virtualMachines", "tags": TAGS}
OWN_VAULT = {"id": "/v", "name": "pkrkvabcdefghij", "properties": {"tags": TAGS, "location": "westeurope"}}
ALL: dict[str, list[tuple[int, dict[str, Any]]]] = {
    "GET_resourcegroups": [(200, {"value": [OWN_GROUP]})],
    "GET_deployments": [(200, {"value": [OWN_DEPLOYMENT]})],
    "POST_exportTemplate": [(200, {"template": {"resources": [{"tags": TAGS}]}})],
    "GET_resources": [(200, {"value": [OWN_DISK, OWN_MACHINE]})],
    "GET_deletedVaults": [(200, {"value": [OWN_VAULT]})],
}


def look(*refused: str, versions: Exception | None = None) -> tuple[list[str], list[str]]:
    """The kinds that are found, and what is told of the rest; `refused`: what may not be asked."""
    manager = Manager(**(ALL | {name: [(403, DENIED)] for name in refused}))

    def list_versions(*_: str) -> list[object]:
        if versions:
            raise versions
        return []

    compute = SimpleNamespace(gallery_image_versions=SimpleNamespace(list_by_gallery_image=list_versions))
    found = [find(manager.arm, cast("Any", compute), PLACE)]
    if found[0].is_answered:
        found.append(find_deleted_vaults(manager.arm))
    leftovers = [each.kind for remains in found for each in remains.leftovers]
    return leftovers, [fault.message for remains in found for fault in remains.faults]


EVERYTHING = [GROUP, MACHINE, "disk", DEPLOYMENT, DELETED_VAULT]


def test_everything_is_found_in_the_order_in_which_it_can_go() -> None:
    assert look() == (EVERYTHING, [])


@pytest.mark.parametrize(
    ("facts", "goes"),
    [
        ({}, True),
        ({"purgeProtectionEnabled": False}, True),
        # Azure deletes it later, and nobody can purge it before.
        ({"purgeProtectionEnabled": True}, False),
        ({"tags": {}}, False),
    ],
    ids=str,
)
def test_a_deleted_vault_goes_unless_it_is_protected_or_no_builds(facts: dict[str, Any], goes: bool) -> None:
    vault = {**OWN_VAULT, "properties": {"tags": TAGS, "location": "westeurope", **facts}}
    found = find_deleted_vaults(Manager(GET_deletedVaults=[(200, {"value": [vault]})]).arm)
    assert [leftover.kind for leftover in found.leftovers] == [DELETED_VAULT] * goes


def test_what_every_build_leaves_is_not_looked_for_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: dict[str, list[tuple[int, dict[str, Any]]]] = {name: [(404, {})] for name in ALL}
    manager = Manager(**nothing)
    compute = SimpleNamespace(gallery_image_versions=SimpleNamespace(list_by_gallery_image=lambda *_: []))
    monkeypatch.setattr(provider, "compute", lambda *_: contextlib.nullcontext(compute))
    monkeypatch.setattr(provider, "resource_manager", lambda *_: contextlib.nullcontext(manager.arm))
    place, swept = sweep.Place("azure", "azure", PLACE.model_dump()), sweep.Swept()
    for usual in (True, False):
        assert swept.leftovers(place, RunFacts({}, {}, ""), usual=usual) == []
    assert swept.faults == []
    assert sum("deletedVaults" in asked for asked in manager.asked) == 1


def test_a_definition_that_is_not_there_has_no_versions() -> None:
    gone = ResourceNotFoundError("The gallery image was not found.")
    gone.status_code = 404
    assert look(versions=gone) == (EVERYTHING, [])


@pytest.mark.parametrize(
    ("refused", "what", "hidden"),
    [
        ("GET_resourcegroups", "resource groups", {GROUP}),
        ("GET_deletedVaults", "deleted key vaults", {DELETED_VAULT}),
        # Its tags are known by its deployment only.
        ("GET_deployments", "deployments in builds", {"disk", DEPLOYMENT}),
        ("POST_exportTemplate", "deployments in builds", {"disk", DEPLOYMENT}),
        # While it is not known what a deployment made, it stays.
        ("GET_resources", "resources in builds", {MACHINE, "disk", DEPLOYMENT}),
    ],
)
def test_a_list_that_is_refused_hides_no_other(refused: str, what: str, hidden: set[str]) -> None:
    kinds, told = look(refused)
    assert kinds == [kind for kind in EVERYTHING if kind not in hidden]
    assert told == [f"looking for {what} in subscription sub: AuthorizationFailed: no"]


def test_versions_that_may_not_be_read_hide_nothing_else() -> None:
    kinds, [told] = look(versions=HttpResponseError("AuthorizationFailed"))
    assert (kinds, told) == (EVERYTHING, "listing the versions of gal/def: None: AuthorizationFailed")


@pytest.mark.parametrize("error", [ServiceRequestError("no route"), ClientAuthenticationError("AADSTS700082: Ended.")])
def test_where_nobody_answers_or_the_credentials_are_rejected_only_one_list_is_asked_for(error: Exception) -> None:
    kinds, told = look(versions=error)
    assert (kinds, len(told)) == ([], 1)


def test_each_is_gone_before_the_next_is_asked_for() -> None:
    manager = Manager(
        DELETE_g=[(202, {})], GET_g=[(200, {}), (200, {}), (404, {})], POST_purge=[(202, {})], GET_v=[(404, {})]
    )
    assert remove(manager, leftover(GROUP, "g"), leftover(DELETED_VAULT, "v")) == [("g", ""), ("v", "")]
    assert [asked.partition("?")[0] for asked in manager.asked] == [
        *("DELETE /x/g", "GET /x/g", "GET /x/g", "GET /x/g"),
        *("POST /x/v/purge", "GET /x/v"),
    ]


def version(state: str, **tags: str) -> tuple[int, dict[str, Any]]:
    worn = {RUN_ID: "run", EXPIRES_AT: "2026-11-18T16:00:00Z", **tags}
    return (
        200,
        {"properties": {"provisioningState": state}, "tags": {key: word for key, word in worn.items() if word}},
    )


LISTED = dataclasses.replace(leftover(VERSION, "v"), state="Creating", expires_at="2026-11-18T16:00:00Z")


@pytest.mark.parametrize(
    ("now", "why_not"),
    [
        (version("Succeeded"), "it is Succeeded now"),
        (version("Updating"), "it is Updating now"),
        (version("Creating", **{EXPIRES_AT: ""}), "it has other tags now"),
        (version("Creating", **{RUN_ID: "another"}), "it has other tags now"),
        (version("Creating", imagegen_report="accepted"), "its report was judged"),
    ],
)
def test_a_version_that_is_no_leftover_any_more_is_kept(now: tuple[int, dict[str, Any]], why_not: str) -> None:
    manager = Manager(GET_v=[now])
    assert remove(manager, LISTED) == [("v", f"it has changed since it was listed: {why_not}")]
    assert [asked.partition("?")[0] for asked in manager.asked] == ["GET /x/v"]


@pytest.mark.parametrize(
    ("worn", "goes"),
    [
        ({}, True),
        ({EXPIRES_AT: "2099-01-01T00:00:00Z"}, False),
        ({"imagegen_report": "accepted"}, False),
        ({"imagegen_report": "rejected"}, False),
        # Packer without imagegen asks nobody.
        ({"imagegen_version": ""}, False),
    ],
    ids=str,
)
def test_a_finished_version_that_nobody_judged_goes_when_it_has_expired(worn: dict[str, str], goes: bool) -> None:
    tags = {RUN_ID: "run", EXPIRES_AT: "2026-01-01T00:00:00Z", "imagegen_version": "0.1.0", **worn}
    captured = SimpleNamespace(
        **{"id": "/x/v", "name": "1.2.3", "location": "westeurope", "provisioning_state": "Succeeded"},
        tags={key: word for key, word in tags.items() if word},
    )
    versions = SimpleNamespace(list_by_gallery_image=lambda *_: [captured])
    found = find(Manager(**ALL).arm, cast("Any", SimpleNamespace(gallery_image_versions=versions)), PLACE).leftovers
    assert [each.id for each in found if each.kind == VERSION] == (["/x/v"] if goes else [])


def test_a_version_that_is_as_it_was_goes() -> None:
    manager = Manager(GET_v=[version("Creating"), (404, {})], DELETE_v=[(202, {})])
    assert remove(manager, LISTED) == [("v", "")]


def test_a_deployment_stays_while_anything_that_it_may_have_made_does() -> None:
    in_use = {"error": {"code": "OperationNotAllowed", "message": "it is attached"}}
    manager = Manager(DELETE_vm=[(409, in_use)], DELETE_d=[(202, {})], GET_d=[(404, {})])
    outcomes = remove(manager, leftover(MACHINE, "vm"), leftover(DEPLOYMENT, "d"))
    assert outcomes == [("vm", "OperationNotAllowed: it is attached"), ("d", "its resources still exist")]
    assert [asked.partition("?")[0] for asked in manager.asked] == ["DELETE /x/vm"]


def test_what_azure_does_not_get_done_is_told() -> None:
    manager = Manager(DELETE_g=[(202, {})], GET_g=[(200, {"properties": {"provisioningState": "Deleting"}})])
    assert remove(manager, leftover(GROUP, "g")) == [("g", "Azure did not delete it within 20 minutes")]
