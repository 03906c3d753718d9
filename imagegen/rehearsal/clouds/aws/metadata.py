"""The stand-in of EC2's instance metadata service, IMDSv1 and IMDSv2.

The categories, with the versions in which AWS released them, are those of an ordinary Nitro instance in a private
subnet without an instance profile. A category that such an instance does not have is answered with 404, as by EC2.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.address import NODE_ADDRESS
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.rehearsal.boot.model import Clock, Instance

ADDRESS: Final = "169.254.169.254"
REGION: Final = "us-east-1"
_ZONE = "us-east-1a"
_MAC = "0e:49:61:0f:c3:11"
_ACCOUNT = "123456789012"
_IMAGE = "ami-0123456789abcdef0"
_SIZE = "m5.large"
_LATEST = "latest"
_VERSIONS = (
    *("1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01"),
    *("2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25", "2014-11-05", "2015-10-20", "2016-04-19"),
    *("2016-06-30", "2016-09-02", "2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03"),
    *("2021-03-23", "2021-07-15", "2022-09-24", "2024-04-11", _LATEST),
)
_UNAUTHORISED = "this instance requires metadata tokens, and cloudbase-init sends none: set its httpTokens to optional"
_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - the path of tokens
_TOKEN = "x-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
_TOKEN_LIFETIME = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"  # noqa: S105 - the name of a header
_LONGEST_LIFETIME_S = 21_600
_TITLES = {
    400: "400 - Bad Request",
    401: "401 - Unauthorized",
    403: "403 - Forbidden",
    404: "404 - Not Found",
    405: "405 - Not Allowed",
}
_PAGE = """\
<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
\t"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head>
  <title>{title}</title>
 </head>
 <body>
  <h1>{title}</h1>
 </body>
</html>
"""
_HEADERS = (("Accept-Ranges", "none"), ("Server", "EC2ws"))
# The version that introduced a value, its path, and the value. None is a signature, which only EC2 can make.
_Value = tuple[str, str, str | None]


class InstanceMetadata:
    """The metadata of one instance. Its tokens are valid until they expire or the instance is gone."""

    def __init__(self, instance: Instance, clock: Clock) -> None:
        self._instance = instance
        self._clock = clock
        self._tokens: dict[str, float] = {}
        self._values = tuple(_values(instance))

    def __call__(self, request: Request) -> Response:
        path = request.path.rstrip("/")
        if path == _TOKEN_PATH:
            return self._make_token(request)
        if request.method not in ("GET", "HEAD"):
            return _error(405, ("Allow", "GET, HEAD"))
        if not self._may_read(request.headers.get(_TOKEN)):
            return dataclasses.replace(_error(401), note=_UNAUTHORISED)
        version, _, rest = path.removeprefix("/").partition("/")
        if not version:
            return _text("\n".join(_VERSIONS))
        return self._answer(version, rest) if version in _VERSIONS else _error(404)

    def _make_token(self, request: Request) -> Response:
        if request.method != "PUT":
            return _error(405, ("Allow", "OPTIONS, PUT"))
        # EC2 gives no token to a request that came through a reverse proxy.
        if "x-forwarded-for" in request.headers:
            return _error(403)
        lifetime = request.headers.get(_TOKEN_LIFETIME.lower(), "")
        if not lifetime.isdecimal() or not 1 <= int(lifetime) <= _LONGEST_LIFETIME_S:
            return _error(400)
        token = secrets.token_urlsafe(40)
        self._tokens[token] = self._clock() + int(lifetime)
        return _text(token, (_TOKEN_LIFETIME, lifetime))

    def _may_read(self, token: str | None) -> bool:
        """An invalid token is refused even if the instance does not require one."""
        if token is None:
            return not self._instance.requires_tokens
        return self._tokens.get(token, 0.0) > self._clock()

    def _answer(self, version: str, path: str) -> Response:
        # "latest" is after every date.
        values = {name: value for since, name, value in self._values if since <= version}
        if path == "user-data":
            return self._user_data()
        if path in values:
            value = values[path]
            if value is not None:
                return _text(value)
            fault = f"the stand-in of {ADDRESS} has no key of AWS to sign the identity of an instance: {path}"
            return Response(500, fault.encode(), fault=fault)
        if path == "meta-data/public-keys" and self._instance.public_keys:
            return _text("\n".join(f"{number}={name}" for number, name in enumerate(self._instance.public_keys)))
        children = _children(path, [*values, *(["user-data"] if self._instance.user_data else [])])
        return _text("\n".join(children)) if children else _error(404)

    def _user_data(self) -> Response:
        data = self._instance.user_data
        headers = (("Content-Type", "application/octet-stream"), *_HEADERS)
        return Response(200, data, headers) if data else _error(404)


def _values(instance: Instance) -> Iterable[_Value]:
    documents: dict[str, tuple[_Value, ...]] = {
        "meta-data": (
            ("1.0", "ami-id", _IMAGE),
            ("1.0", "ami-launch-index", "0"),
            ("1.0", "ami-manifest-path", "(unknown)"),
            ("2007-12-15", "block-device-mapping/ami", "/dev/sda1"),
            ("2007-12-15", "block-device-mapping/root", "/dev/sda1"),
            ("2018-08-17", "events/maintenance/history", "[]"),
            ("2018-08-17", "events/maintenance/scheduled", "[]"),
            ("2018-09-24", "hibernation/configured", "false"),
            ("1.0", "hostname", instance.host_name),
            ("2008-09-01", "instance-action", "none"),
            ("1.0", "instance-id", instance.instance_id),
            ("2019-10-01", "instance-life-cycle", "on-demand"),
            ("2007-08-29", "instance-type", _SIZE),
            ("2007-01-19", "local-hostname", instance.host_name),
            ("1.0", "local-ipv4", NODE_ADDRESS),
            ("2011-01-01", "mac", _MAC),
            *_interface(instance),
            ("2008-02-01", "placement/availability-zone", _ZONE),
            ("2019-10-01", "placement/availability-zone-id", "use1-az1"),
            ("2020-10-27", "placement/region", REGION),
            ("2011-01-01", "profile", "default-hvm"),
            *(
                ("1.0", f"public-keys/{number}/openssh-key", f"{key}\n")
                for number, key in enumerate(instance.public_keys.values())
            ),
            ("1.0", "reservation-id", "r-0123456789abcdef0"),
            ("1.0", "security-groups", "nodes"),
            ("2014-02-25", "services/domain", "amazonaws.com"),
            ("2015-10-20", "services/partition", "aws"),
            ("2022-09-24", "system", "nitro"),
        ),
        "dynamic": (
            ("2009-04-04", "fws/instance-monitoring", "disabled"),
            ("2009-04-04", "instance-identity/document", _identity(instance)),
            *(("2009-04-04", f"instance-identity/{name}", None) for name in ("pkcs7", "rsa2048", "signature")),
        ),
    }
    for folder, values in documents.items():
        yield from ((since, f"{folder}/{name}", value) for since, name, value in values)


def _interface(instance: Instance) -> Iterable[_Value]:
    values = {
        "device-number": "0",
        "interface-id": "eni-0123456789abcdef0",
        "local-hostname": instance.host_name,
        "local-ipv4s": NODE_ADDRESS,
        "mac": _MAC,
        "owner-id": _ACCOUNT,
        "security-group-ids": "sg-0123456789abcdef0",
        "security-groups": "nodes",
        "subnet-id": "subnet-0123456789abcdef0",
        "subnet-ipv4-cidr-block": "10.0.0.0/24",
        "vpc-id": "vpc-0123456789abcdef0",
        "vpc-ipv4-cidr-block": "10.0.0.0/16",
    }
    for name, value in values.items():
        yield "2011-01-01", f"network/interfaces/macs/{_MAC}/{name}", value
    yield "2016-06-30", f"network/interfaces/macs/{_MAC}/vpc-ipv4-cidr-blocks", "10.0.0.0/16"


def _identity(instance: Instance) -> str:
    document = {
        "accountId": _ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": _ZONE,
        "billingProducts": ["bp-6ba54002"],
        "devpayProductCodes": None,
        "marketplaceProductCodes": None,
        "imageId": _IMAGE,
        "instanceId": instance.instance_id,
        "instanceType": _SIZE,
        "kernelId": None,
        "pendingTime": "2026-11-18T00:00:00Z",
        "privateIp": NODE_ADDRESS,
        "ramdiskId": None,
        "region": REGION,
        "version": "2017-09-30",
    }
    return json.dumps(document, indent=2)


def _children(path: str, names: Iterable[str]) -> list[str]:
    """What a folder lists. The folders below it end with a slash, except those of a version."""
    prefix = f"{path}/" if path else ""
    below = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    slash = "/" if path else ""
    return sorted({first + slash if rest else first for first, _, rest in (name.partition("/") for name in below)})


def _text(text: str, *headers: tuple[str, str]) -> Response:
    return Response(200, text.encode(), (("Content-Type", "text/plain"), *headers, *_HEADERS))


def _error(status: int, *headers: tuple[str, str]) -> Response:
    page = _PAGE.format(title=_TITLES[status]).encode("iso-8859-1")
    return Response(status, page, (("Content-Type", "text/html"), *headers, *_HEADERS))
