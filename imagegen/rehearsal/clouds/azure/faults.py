"""Faults of Azure's Resource Manager, with the codes, statuses and sentences that it uses."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any, Final

from imagegen.rehearsal.faults.fault import CloudFaults
from imagegen.rehearsal.faults.web import BLOCKED_PAGE
from imagegen.rehearsal.network.messages import HANG_UP, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.faults.fault import Meter, Place
    from imagegen.rehearsal.stage import Stage

_HOST: Final = "management.azure.com"
_VERSION: Final = "*/galleries/*/images/*/versions/*"
_SKUS: Final = "*/skus/*/versions"
_LOCATIONS: Final = "/subscriptions/*/locations"
_DEPLOYMENT: Final = "*/deployments/*"
_GROUP: Final = re.compile(r"/subscriptions/[^/]+/resourcegroups/[^/]+/?", re.IGNORECASE)
_RETRY_AFTER: Final = {"Retry-After": "1"}
_FEW = 2
_THROTTLED = 3
_LOOKS_AT_A_SLOW_DELETION = 8


def arm_error(status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> Response:
    """An error as the Resource Manager answers it."""
    return Response.of_json(status, {"error": {"code": code, "message": message}}, headers=headers)


def template_error(code: str, message: str) -> Response:
    """As a template is refused, in its validation and again in its deployment."""
    outer = "The template deployment is not valid according to the validation procedure. See inner errors for details."
    details = [{"code": code, "message": message}]
    return Response.of_json(400, {"error": {"code": "InvalidTemplateDeployment", "message": outer, "details": details}})


def no_capacity(size: str, location: str) -> str:
    """The Resource Manager's sentence for SkuNotAvailable."""
    return (
        f"The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: {size}' is "
        f"currently not available in location '{location}'. Please try another size or deploy to a different location "
        "or different zone. See https://aka.ms/azureskunotavailable for details."
    )


THROTTLED: Final = arm_error(
    429,
    "SubscriptionRequestsThrottled",
    "Number of requests for subscription exceeded the limit for time interval. Please try again after '1' seconds.",
    headers=_RETRY_AFTER,
)
INTERNAL_ERROR: Final = arm_error(
    500, "InternalServerError", "Encountered internal server error.", headers=_RETRY_AFTER
)


def throttle(stage: Stage, _: Place) -> Meter:
    """While the version is published."""
    return _met(stage, _VERSION, _is_built(stage), response=THROTTLED, times=_THROTTLED)


def server_error(stage: Stage, _: Place) -> Meter:
    """At the look-up of the base image."""
    return _met(stage, _SKUS, response=INTERNAL_ERROR, times=_FEW)


def lost_answer(stage: Stage, place: Place) -> Meter:
    """Azure begins to replicate, and the connection ends before its answer came."""
    return _met(
        stage,
        _VERSION,
        _replicates_to(place.away),
        mutate=lambda _, own: dataclasses.replace(own, status=HANG_UP.status),
        times=1,
    )


def html_page(stage: Stage, _: Place) -> Meter:
    """From the look-up of the base image on."""
    return _met(stage, "*", response=BLOCKED_PAGE)


def quota(stage: Stage, place: Place) -> Meter:
    """At every size."""
    message = (
        "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. Additional "
        f"details - Deployment Model: Resource Manager, Location: {place.home}, Current Limit: 10, Current Usage: 8, "
        "Additional Required: 4, (Minimum) New Limit Required: 12."
    )
    refusal = template_error("QuotaExceeded", message)
    return _met(stage, _DEPLOYMENT, _has_machine, response=refusal)


def capacity(stage: Stage, place: Place) -> Meter:
    """At the first size."""
    size = place.sizes[0]
    refusal = template_error("SkuNotAvailable", no_capacity(size, place.home))

    def is_meant(request: Request) -> bool:
        return _has_machine(request) and f'"{size}"'.encode() in request.body

    return _met(stage, _DEPLOYMENT, is_meant, response=refusal)


def region_not_enabled(stage: Stage, place: Place) -> Meter:
    """The region of the replica: the subscription's list lacks it, and no version goes there."""

    def without(_: Request, own: Response) -> Response | None:
        listed = json.loads(own.body)
        kept = [each for each in listed.get("value", []) if each["name"] != place.away]
        return dataclasses.replace(own, body=json.dumps({**listed, "value": kept}).encode())

    shown = _met(stage, _LOCATIONS, mutate=without)
    message = (
        f"The provided location '{place.away}' is not available for resource type "
        "'Microsoft.Compute/galleries/images/versions'."
    )
    refusal = arm_error(400, "LocationNotAvailableForResourceType", message)
    asked = _met(stage, _VERSION, _replicates_to(place.away), response=refusal)
    return lambda: shown() + asked()


def copy_fails(stage: Stage, place: Place) -> Meter:
    """The replication is begun, and ends as failed."""
    reason = "Replication failed in this region due to 'The replication operation has failed.'"

    def fail(_: Request, own: Response) -> Response | None:
        version = json.loads(own.body)
        properties: dict[str, Any] = version.get("properties", {})
        replicas = properties.get("replicationStatus", {})
        mine = [each for each in replicas.get("summary", []) if _short(each["region"]) == place.away]
        if properties.get("provisioningState") != "Succeeded" or not mine:
            return None
        mine[0].update(state="Failed", details=reason, progress=0)
        replicas["aggregatedState"] = properties["provisioningState"] = "Failed"
        return dataclasses.replace(own, body=json.dumps(version).encode())

    return _met(stage, _VERSION, lambda request: request.method == "GET", mutate=fail)


def slow_clean_up(stage: Stage, _: Place) -> Meter:
    """The resource group that Packer deletes takes its time, and nothing is heard of it meanwhile."""
    path = "/subscriptions/rehearsal/operationresults/slow-clean-up"
    again = {"Location": f"https://{_HOST}{path}?api-version=2020-10-01", **_RETRY_AFTER}
    running = Response(202, headers=tuple(again.items()))

    def begin(request: Request, own: Response) -> Response | None:
        return running if _GROUP.fullmatch(request.path) and own.status == 200 else None

    begun = _met(stage, "*", lambda request: request.method == "DELETE", mutate=begin, times=1)
    _met(stage, path, response=running, times=_LOOKS_AT_A_SLOW_DELETION)
    _met(stage, path, response=Response(200))
    return begun


def _met(
    stage: Stage,
    path: str,
    when: Callable[[Request], bool] | None = None,
    *,
    response: Response | None = None,
    mutate: Callable[[Request, Response], Response | None] | None = None,
    times: int | None = None,
) -> Meter:
    injection = stage.network.inject(_HOST, path, response, mutate=mutate, when=when, times=times)
    return lambda: injection.met


def _has_machine(request: Request) -> bool:
    return b"virtualMachines" in request.body


def _replicates_to(away: str) -> Callable[[Request], bool]:
    def replicates(request: Request) -> bool:
        if request.method != "PUT":
            return False
        profile = request.json().get("properties", {}).get("publishingProfile", {})
        return away in {_short(target["name"]) for target in profile.get("targetRegions") or []}

    return replicates


def _is_built(stage: Stage) -> Callable[[Request], bool]:
    """Packer captured the image: whoever looks at versions now, publishes."""
    return lambda request: request.method == "GET" and "PUT galleries/images/versions" in stage.network.notes(_HOST)


def _short(region: str) -> str:
    return region.replace(" ", "").lower()


FAULTS: Final = CloudFaults(
    shared={
        "server-error": server_error,
        "html-page": html_page,
        "capacity": capacity,
        "quota": quota,
        "slow-clean-up": slow_clean_up,
        "throttle": throttle,
        "dropped-connection": lost_answer,
        "region-not-enabled": region_not_enabled,
        "copy-fails": copy_fails,
    },
)
