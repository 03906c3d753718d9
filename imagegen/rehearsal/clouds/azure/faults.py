"""Faults of Azure Resource Manager (ARM), with its own error codes, statuses and messages."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any, Final

from imagegen.rehearsal.faults.fault import CloudFaults
from imagegen.rehearsal.faults.web_filter import BLOCKED_PAGE
from imagegen.rehearsal.network.messages import HANG_UP, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.faults.fault import FaultSettings, TriggerCount
    from imagegen.rehearsal.sandbox import Sandbox

_HOST: Final = "management.azure.com"
_VERSION: Final = "*/galleries/*/images/*/versions/*"
_SKUS: Final = "*/skus/*/versions"
_LOCATIONS: Final = "/subscriptions/*/locations"
_DEPLOYMENT: Final = "*/deployments/*"
_GROUP: Final = re.compile(r"/subscriptions/[^/]+/resourcegroups/[^/]+/?", re.IGNORECASE)
_RETRY_AFTER: Final = {"Retry-After": "1"}
_SERVER_ERRORS = 2
_THROTTLED_REQUESTS = 3
_POLLS_OF_SLOW_DELETION = 8


def arm_error(status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> Response:
    """An error in the form of ARM."""
    return Response.of_json(status, {"error": {"code": code, "message": message}}, headers=headers)


def template_error(code: str, message: str) -> Response:
    """The error of a rejected template, in its validation and in its deployment."""
    outer = "The template deployment is not valid according to the validation procedure. See inner errors for details."
    details = [{"code": code, "message": message}]
    return Response.of_json(400, {"error": {"code": "InvalidTemplateDeployment", "message": outer, "details": details}})


def no_capacity(size: str, location: str) -> str:
    """ARM's message for SkuNotAvailable."""
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


def throttle(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Throttles requests while the version is published."""
    return _inject(sandbox, _VERSION, _is_built(sandbox), response=THROTTLED, times=_THROTTLED_REQUESTS)


def server_error(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Fails the look-up of the base image."""
    return _inject(sandbox, _SKUS, response=INTERNAL_ERROR, times=_SERVER_ERRORS)


def dropped_connection(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Starts the replication, but closes the connection before the answer."""
    return _inject(
        sandbox,
        _VERSION,
        _replicates_to(settings.publish_region),
        mutate=lambda _, own: dataclasses.replace(own, status=HANG_UP.status),
        times=1,
    )


def html_page(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Answers every request from the look-up of the base image on."""
    return _inject(sandbox, "*", response=BLOCKED_PAGE)


def quota(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Rejects every size."""
    message = (
        "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. Additional "
        f"details - Deployment Model: Resource Manager, Location: {settings.build_region}, Current Limit: 10, "
        "Current Usage: 8, Additional Required: 4, (Minimum) New Limit Required: 12."
    )
    return _inject(sandbox, _DEPLOYMENT, _has_machine, response=template_error("QuotaExceeded", message))


def capacity(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Rejects the first size."""
    size = settings.sizes[0]
    rejection = template_error("SkuNotAvailable", no_capacity(size, settings.build_region))

    def is_matching(request: Request) -> bool:
        return _has_machine(request) and f'"{size}"'.encode() in request.body

    return _inject(sandbox, _DEPLOYMENT, is_matching, response=rejection)


def region_not_enabled(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Removes the region of the replica from the subscription's list, and rejects replication to it."""

    def remove_region(_: Request, own: Response) -> Response | None:
        locations = json.loads(own.body)
        kept = [location for location in locations.get("value", []) if location["name"] != settings.publish_region]
        return dataclasses.replace(own, body=json.dumps({**locations, "value": kept}).encode())

    listed = _inject(sandbox, _LOCATIONS, mutate=remove_region)
    message = (
        f"The provided location '{settings.publish_region}' is not available for resource type "
        "'Microsoft.Compute/galleries/images/versions'."
    )
    rejection = arm_error(400, "LocationNotAvailableForResourceType", message)
    rejected = _inject(sandbox, _VERSION, _replicates_to(settings.publish_region), response=rejection)
    return lambda: listed() + rejected()


def copy_fails(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Starts the replication, which then fails."""
    reason = "Replication failed in this region due to 'The replication operation has failed.'"

    def fail(_: Request, own: Response) -> Response | None:
        version = json.loads(own.body)
        properties: dict[str, Any] = version.get("properties", {})
        replicas = properties.get("replicationStatus", {})
        matching = [row for row in replicas.get("summary", []) if _short_name(row["region"]) == settings.publish_region]
        if properties.get("provisioningState") != "Succeeded" or not matching:
            return None
        matching[0].update(state="Failed", details=reason, progress=0)
        replicas["aggregatedState"] = properties["provisioningState"] = "Failed"
        return dataclasses.replace(own, body=json.dumps(version).encode())

    return _inject(sandbox, _VERSION, lambda request: request.method == "GET", mutate=fail)


def slow_clean_up(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Delays the deletion of the build's resource group."""
    path = "/subscriptions/rehearsal/operationresults/slow-clean-up"
    poll = {"Location": f"https://{_HOST}{path}?api-version=2020-10-01", **_RETRY_AFTER}
    running = Response(202, headers=tuple(poll.items()))

    def start(request: Request, own: Response) -> Response | None:
        return running if _GROUP.fullmatch(request.path) and own.status == 200 else None

    started = _inject(sandbox, "*", lambda request: request.method == "DELETE", mutate=start, times=1)
    _inject(sandbox, path, response=running, times=_POLLS_OF_SLOW_DELETION)
    _inject(sandbox, path, response=Response(200))
    return started


def _inject(
    sandbox: Sandbox,
    path: str,
    when: Callable[[Request], bool] | None = None,
    *,
    response: Response | None = None,
    mutate: Callable[[Request, Response], Response | None] | None = None,
    times: int | None = None,
) -> TriggerCount:
    injection = sandbox.network.inject(_HOST, path, response, mutate=mutate, when=when, times=times)
    return lambda: injection.triggered


def _has_machine(request: Request) -> bool:
    return b"virtualMachines" in request.body


def _replicates_to(region: str) -> Callable[[Request], bool]:
    def is_matching(request: Request) -> bool:
        if request.method != "PUT":
            return False
        profile = request.json().get("properties", {}).get("publishingProfile", {})
        return region in {_short_name(target["name"]) for target in profile.get("targetRegions") or []}

    return is_matching


def _is_built(sandbox: Sandbox) -> Callable[[Request], bool]:
    """Matches requests of publishing: Packer has created the image version already."""
    return lambda request: request.method == "GET" and "PUT galleries/images/versions" in sandbox.network.notes(_HOST)


def _short_name(region: str) -> str:
    return region.replace(" ", "").lower()


FAULTS: Final = CloudFaults(
    shared={
        "server-error": server_error,
        "html-page": html_page,
        "capacity": capacity,
        "quota": quota,
        "slow-clean-up": slow_clean_up,
        "throttle": throttle,
        "dropped-connection": dropped_connection,
        "region-not-enabled": region_not_enabled,
        "copy-fails": copy_fails,
    },
)
