"""Faults of EC2, with EC2's own error codes, statuses and messages."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from imagegen.base.errors import ExitCode
from imagegen.rehearsal.faults.fault import CloudFaults, Fault
from imagegen.rehearsal.faults.guest import winrm_away
from imagegen.rehearsal.faults.web_filter import BLOCKED_PAGE
from imagegen.rehearsal.network.messages import HANG_UP, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.faults.fault import FaultSettings, TriggerCount
    from imagegen.rehearsal.sandbox import Sandbox

_XML = (("Content-Type", "text/xml;charset=UTF-8"),)
_REQUEST_ID = "00000000-0000-0000-0000-000000000000"
# More than the attempts of the SDK.
_THROTTLED_REQUESTS = 8
_SERVER_ERRORS = 2
# Packer polls every five seconds.
_POLLS_OF_SLOW_TERMINATION = 2


def ec2_error(status: int, code: str, message: str) -> Response:
    """An error as EC2 answers it."""
    text = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
        f"<RequestID>{_REQUEST_ID}</RequestID></Response>"
    )
    return Response(status, text.encode(), _XML)


THROTTLED = ec2_error(503, "RequestLimitExceeded", "Request limit exceeded.")
INTERNAL_ERROR = ec2_error(500, "InternalError", "An internal error has occurred")
# The answer of EC2 in a region that is not enabled for the account.
NOT_ENABLED = ec2_error(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
QUOTA = ec2_error(
    400,
    "VcpuLimitExceeded",
    "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket that the "
    "specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an "
    "adjustment to this limit.",
)
# The answer for a client token whose image no longer exists.
KEPT_COPY = Response(
    200,
    b'<CopyImageResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    b"<requestId>00000000-0000-0000-0000-000000000000</requestId><imageId>ami-0123456789abcdef0</imageId>"
    b"</CopyImageResponse>",
    _XML,
)


def throttle(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Throttles requests in the region of the copy."""
    return _inject(sandbox, settings.publish_region, response=THROTTLED, times=_THROTTLED_REQUESTS)


def server_error(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Fails the look-up of the base image."""
    return _inject(sandbox, settings.build_region, response=INTERNAL_ERROR, times=_SERVER_ERRORS)


def dropped_connection(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Starts the copy, but closes the connection before the answer."""
    return _inject(
        sandbox,
        settings.publish_region,
        {"Action": "CopyImage"},
        mutate=lambda _, own: dataclasses.replace(own, status=HANG_UP.status),
        times=1,
    )


def html_page(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Answers every request from the look-up of the base image on."""
    return _inject(sandbox, settings.build_region, response=BLOCKED_PAGE)


def quota(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Rejects every size."""
    return _inject(sandbox, settings.build_region, {"Action": "RunInstances"}, response=QUOTA)


def capacity(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Rejects the first size. EC2 does it with status 500, so Packer's plugin retries ten times before it fails."""
    size = settings.sizes[0]
    message = (
        f"We currently do not have sufficient {size} capacity in the Availability Zone you requested "
        f"({settings.build_region}a). Our system will be working on provisioning additional capacity."
    )
    none_left = ec2_error(500, "InsufficientInstanceCapacity", message)
    return _inject(sandbox, settings.build_region, {"Action": "RunInstances", "InstanceType": size}, response=none_left)


def region_not_enabled(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Disables the region of the copy: it rejects the credentials, and the list of regions has the reason."""
    status = re.compile(
        rf"(<regionName>{re.escape(settings.publish_region)}</regionName>(?:(?!</item>).)*<optInStatus>)[a-z-]+"
    )

    def opt_out(_: Request, own: Response) -> Response | None:
        text, found = status.subn(r"\1not-opted-in", own.body.decode())
        return dataclasses.replace(own, body=text.encode()) if found else None

    listed = _inject(sandbox, settings.build_region, {"Action": "DescribeRegions"}, mutate=opt_out)
    rejected = _inject(sandbox, settings.publish_region, response=NOT_ENABLED)
    return lambda: listed() + rejected()


def copy_fails(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Starts the copy, which then fails."""
    reason = "<code>Client.InternalError</code><message>Copy image failed with an internal error.</message>"
    failed = f"<imageState>failed</imageState><stateReason>{reason}</stateReason>"

    def fail(_: Request, own: Response) -> Response | None:
        body = own.body.replace(b"<imageState>pending</imageState>", failed.encode())
        return dataclasses.replace(own, body=body) if body != own.body else None

    return _inject(sandbox, settings.publish_region, {"Action": "DescribeImages"}, mutate=fail)


def same_client_token(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Returns the recorded answer for the client token, whose copy was deregistered."""
    return _inject(sandbox, settings.publish_region, {"Action": "CopyImage"}, response=KEPT_COPY, times=1)


def slow_clean_up(sandbox: Sandbox, settings: FaultSettings) -> TriggerCount:
    """Delays the termination of the machine."""

    def delay(_: Request, own: Response) -> Response | None:
        body = own.body.replace(b"<name>terminated</name>", b"<name>shutting-down</name>")
        return dataclasses.replace(own, body=body) if body != own.body else None

    return _inject(
        sandbox, settings.build_region, {"Action": "DescribeInstances"}, mutate=delay, times=_POLLS_OF_SLOW_TERMINATION
    )


_ANY: Final[Mapping[str, str]] = {}


def _inject(
    sandbox: Sandbox,
    region: str,
    form: Mapping[str, str] = _ANY,
    *,
    response: Response | None = None,
    mutate: Callable[[Request, Response], Response | None] | None = None,
    times: int | None = None,
) -> TriggerCount:
    """Inject a fault into the region's EC2, into all requests or those with these fields of a form."""

    def is_matching(request: Request) -> bool:
        given = request.form()
        # In a dry run of a launch, EC2 checks only the permissions.
        is_dry_run = form.get("Action") == "RunInstances" and given.get("DryRun") == "true"
        return form.items() <= given.items() and not is_dry_run

    host = f"ec2.{region}.amazonaws.com"
    injection = sandbox.network.inject(host, response=response, mutate=mutate, when=is_matching, times=times)
    return lambda: injection.triggered


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
    own=(
        Fault(
            "same-client-token",
            "EC2 answers the copy's client token with a copy that was deregistered. It takes two minutes.",
            ExitCode.OK,
            {"aws": same_client_token},
            needs_publish_region=True,
        ),
        # Only where the plugin that imagegen installs connects again.
        Fault(
            "winrm-away",
            "WinRM on the machine is away for some seconds in the middle of a phase.",
            ExitCode.OK,
            {"aws": winrm_away},
        ),
    ),
)
