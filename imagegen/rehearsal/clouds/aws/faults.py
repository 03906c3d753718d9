"""Faults of EC2, with the codes, statuses and sentences that EC2 itself uses."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from imagegen.errors import ExitCode
from imagegen.rehearsal.faults.fault import CloudFaults, Fault
from imagegen.rehearsal.faults.web import BLOCKED_PAGE
from imagegen.rehearsal.network.messages import HANG_UP, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.faults.fault import Meter, Place
    from imagegen.rehearsal.stage import Stage

_XML = (("Content-Type", "text/xml;charset=UTF-8"),)
_REQUEST_ID = "00000000-0000-0000-0000-000000000000"
# More than the SDK's attempts: the throttling outlasts them.
_THROTTLED = 8
_FEW = 2
# Packer looks every five seconds.
_LOOKS_AT_A_SLOW_TERMINATION = 2


def ec2_error(status: int, code: str, message: str) -> Response:
    """An error as EC2 answers it."""
    text = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
        f"<RequestID>{_REQUEST_ID}</RequestID></Response>"
    )
    return Response(status, text.encode(), _XML)


THROTTLED = ec2_error(503, "RequestLimitExceeded", "Request limit exceeded.")
INTERNAL_ERROR = ec2_error(500, "InternalError", "An internal error has occurred")
# What EC2 answers in a region that the account has not enabled.
NOT_ENABLED = ec2_error(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
QUOTA = ec2_error(
    400,
    "VcpuLimitExceeded",
    "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket that the "
    "specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an "
    "adjustment to this limit.",
)
# The answer of a client token whose image is gone.
KEPT_COPY = Response(
    200,
    b'<CopyImageResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    b"<requestId>00000000-0000-0000-0000-000000000000</requestId><imageId>ami-0123456789abcdef0</imageId>"
    b"</CopyImageResponse>",
    _XML,
)


def throttle(stage: Stage, place: Place) -> Meter:
    """In the region of the copy."""
    return _met(stage, place.away, response=THROTTLED, times=_THROTTLED)


def server_error(stage: Stage, place: Place) -> Meter:
    """At the look-up of the base image."""
    return _met(stage, place.home, response=INTERNAL_ERROR, times=_FEW)


def lost_answer(stage: Stage, place: Place) -> Meter:
    """EC2 begins the copy, and the connection ends before its answer came."""
    return _met(
        stage, place.away, "CopyImage", mutate=lambda _, own: dataclasses.replace(own, status=HANG_UP.status), times=1
    )


def html_page(stage: Stage, place: Place) -> Meter:
    """From the look-up of the base image on."""
    return _met(stage, place.home, response=BLOCKED_PAGE)


def quota(stage: Stage, place: Place) -> Meter:
    """At every size."""
    return _met(stage, place.home, "RunInstances", response=QUOTA)


def capacity(stage: Stage, place: Place) -> Meter:
    """At the first size: EC2 answers this with status 500, and Packer's plugin asks ten times before it gives up."""
    size = place.sizes[0]
    message = (
        f"We currently do not have sufficient {size} capacity in the Availability Zone you requested "
        f"({place.home}a). Our system will be working on provisioning additional capacity."
    )
    none_left = ec2_error(500, "InsufficientInstanceCapacity", message)
    return _met(stage, place.home, "RunInstances", {"InstanceType": size}, response=none_left)


def region_not_enabled(stage: Stage, place: Place) -> Meter:
    """The region of the copy: it takes no credentials, and the list of regions says why."""
    status = re.compile(rf"(<regionName>{re.escape(place.away)}</regionName>(?:(?!</item>).)*<optInStatus>)[a-z-]+")

    def opt_out(_: Request, own: Response) -> Response | None:
        text, found = status.subn(r"\1not-opted-in", own.body.decode())
        return dataclasses.replace(own, body=text.encode()) if found else None

    listed = _met(stage, place.home, "DescribeRegions", mutate=opt_out)
    asked = _met(stage, place.away, response=NOT_ENABLED)
    return lambda: listed() + asked()


def copy_fails(stage: Stage, place: Place) -> Meter:
    """The copy is begun, and ends as failed."""
    reason = "<code>Client.InternalError</code><message>Copy image failed with an internal error.</message>"
    failed = f"<imageState>failed</imageState><stateReason>{reason}</stateReason>"

    def fail(_: Request, own: Response) -> Response | None:
        body = own.body.replace(b"<imageState>pending</imageState>", failed.encode())
        return dataclasses.replace(own, body=body) if body != own.body else None

    return _met(stage, place.away, "DescribeImages", mutate=fail)


def same_token(stage: Stage, place: Place) -> Meter:
    """EC2 keeps a client token's answer, also after the copy that it named was deregistered."""
    return _met(stage, place.away, "CopyImage", response=KEPT_COPY, times=1)


def slow_clean_up(stage: Stage, place: Place) -> Meter:
    """The machine that Packer terminates takes its time."""

    def delay(_: Request, own: Response) -> Response | None:
        body = own.body.replace(b"<name>terminated</name>", b"<name>shutting-down</name>")
        return dataclasses.replace(own, body=body) if body != own.body else None

    return _met(stage, place.home, "DescribeInstances", mutate=delay, times=_LOOKS_AT_A_SLOW_TERMINATION)


def _met(
    stage: Stage,
    region: str,
    action: str = "",
    fields: dict[str, str] | None = None,
    *,
    response: Response | None = None,
    mutate: Callable[[Request, Response], Response | None] | None = None,
    times: int | None = None,
) -> Meter:
    """Inject into the region's EC2, into one action or all."""
    wanted = {**({"Action": action} if action else {}), **(fields or {})}

    def is_meant(request: Request) -> bool:
        form = request.form()
        # Of a launch that is only tried, EC2 looks at the permissions alone.
        is_tried = action == "RunInstances" and form.get("DryRun") == "true"
        return wanted.items() <= form.items() and not is_tried

    host = f"ec2.{region}.amazonaws.com"
    injection = stage.network.inject(host, response=response, mutate=mutate, when=is_meant, times=times)
    return lambda: injection.met


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
    own=(
        Fault(
            "same-client-token",
            "EC2 answers the copy's client token with a copy that was deregistered. It takes two minutes.",
            ExitCode.OK,
            {"aws": same_token},
            needs_away=True,
        ),
    ),
)
