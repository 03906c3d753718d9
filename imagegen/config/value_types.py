"""The types of single values in a config: versions, paths, durations, URLs, hosts and images.

A host that is valid here is valid for all its users: Python's resolver, TLS, containerd's folders and Windows.
"""

import ipaddress
import re
from typing import Annotated, Final

import pydantic

from imagegen.base.errors import InvalidValue
from imagegen.catalog.facts import table
from imagegen.config.checks import check_file_name, check_program, check_program_folder
from imagegen.config.problems import closest, quoted
from imagegen.steps.resource import Name, WindowsPath

_LONGEST_HOST: Final = 253
_LONGEST_LABEL: Final = 63
_LAST_PORT: Final = 65535
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"


# Without leading zeros: each version has one spelling.
Version = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[a-z]+\.[0-9]+)?$", max_length=40
    ),
]
# Docker's older versions have a year and a month with a leading zero: 19.03.12. Its previews end with -rc.1, and older
# ones with -rc1.
DockerVersion = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[1-9][0-9]*\.[0-9]{1,2}\.[0-9]+(-(beta|rc)\.?[0-9]+)?$", max_length=40)
]
Kb = Annotated[str, pydantic.StringConstraints(pattern=r"^KB[0-9]{6,8}$")]
# A folder that command lines contain without quotes: it has no space.
PlainFolder = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[A-Z]:(\\[A-Za-z0-9_.-]*[A-Za-z0-9_-])+$"),
    pydantic.AfterValidator(check_program_folder),
]
ProgramPath = Annotated[WindowsPath, pydantic.AfterValidator(check_program)]
FileName = pydantic.AfterValidator(check_file_name)
# A path below the config's folder, with forward slashes. No part ends in a dot: Windows would drop it.
_PART: Final = "[A-Za-z0-9_-]([A-Za-z0-9._-]*[A-Za-z0-9_-])?"


def _check_is_below(value: object) -> object:
    if isinstance(value, str) and "\\" in value:
        raise InvalidValue(f"{quoted(value)} has a backslash", "write / between folders, also on Windows")
    if isinstance(value, str) and (value.startswith("/") or ".." in value.split("/")):
        raise InvalidValue(
            f"{quoted(value)} leads out of the config's folder", "write a path in this folder or below it"
        )
    return value


RelativePath = Annotated[
    str,
    pydantic.StringConstraints(pattern=rf"^{_PART}(/{_PART})*$", max_length=200),
    pydantic.BeforeValidator(_check_is_below),
    FileName,
]


def _check_script(file: str) -> str:
    if not file.lower().endswith(".ps1"):
        raise InvalidValue(
            f"{file} is not a PowerShell file, so nothing on the machine would run it",
            "write a file that ends with .ps1",
        )
    return file


ScriptFile = Annotated[RelativePath, pydantic.AfterValidator(_check_script)]


def _check_program_name(name: str) -> str:
    if name.lower().endswith(".exe"):
        raise InvalidValue(
            f"imagegen adds .exe to the file, so its name would be {name}.exe", f"write {name.removesuffix('.exe')}"
        )
    return name


ProgramName = Annotated[Name, pydantic.AfterValidator(_check_program_name), FileName]
# One line of text, for an ini file, a TOML file or a registry value.
Line = Annotated[str, pydantic.StringConstraints(pattern=r"^[ -~]+$", max_length=500)]


def _check_time_zone(name: str) -> str:
    zones = table("time-zones")
    if name.removesuffix(zones["without_daylight"]) not in zones["names"]:
        meant = closest(name, zones["names"])
        list_them = "write a name that tzutil /l lists, for example W. Europe Standard Time, or UTC"
        hint = f"did you mean {quoted(meant)}?" if meant else list_them
        raise InvalidValue(f"Windows has no time zone {quoted(name)}", hint)
    return name


TimeZone = Annotated[Line, pydantic.AfterValidator(_check_time_zone)]


def _check_duration(text: str) -> str:
    # https://pkg.go.dev/time#Duration
    longest = (2**63 - 1) // 10**9 // {"s": 1, "m": 60, "h": 3600}[text[-1]]
    if int(text[:-1]) > longest:
        raise InvalidValue(f"{text} is longer than Go's longest duration", f"write at most {longest}{text[-1]}")
    return text


# Go reads it into 64 bits of nanoseconds: a longer duration ends the program that reads it.
Duration = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[1-9][0-9]{0,18}(s|m|h)$"),
    pydantic.AfterValidator(_check_duration),
]
# The name of a variable in the templates of a step.
StepOption = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")]
Minutes = Annotated[int, pydantic.Field(ge=1, le=720)]

# For the schema: editors know only patterns. The models have wider patterns, so that the checks below can tell what is
# wrong.
_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = rf"{_LABEL}(\.{_LABEL})*(:[1-9][0-9]{{0,4}})?"


def check_host(host: str) -> str:
    """Check a host name (labels of RFC 1123) or an IPv4 address."""
    name, labels = f"the host {host!r}", host.split(".")
    others = re.sub(r"[A-Za-z0-9.-]", "", host)
    long = next((label for label in labels if len(label) > _LONGEST_LABEL), "")
    dashed = next((label for label in labels if label.startswith("-") or label.endswith("-")), "")
    faults = (
        (host.startswith("["), f"the host {host} is an IPv6 address, which is not supported here", "write a host name"),
        (not host.isascii(), f"{name} has a character outside ASCII", "write its ASCII form, as xn--bcher-kva"),
        (others, f"{name} has the character {others[:1]!r}", "a host name has letters, digits, dashes and dots"),
        (
            len(host) > _LONGEST_HOST,
            f"the host {host[:20]}… has {len(host)} characters",
            f"a host name has at most {_LONGEST_HOST}",
        ),
        ("" in labels, f"{name} has an empty part", "write one dot between two parts, and none at either end"),
        (
            long,
            f"the part {long[:20]}… of the host has {len(long)} characters",
            f"between two dots there are at most {_LONGEST_LABEL}",
        ),
        (dashed, f"the part {dashed!r} of {name} begins or ends with a dash", "remove that dash"),
        (
            labels[-1].isdigit() and not re.fullmatch(rf"{_OCTET}(\.{_OCTET}){{3}}", host),
            f"{name} is neither a name nor an IPv4 address",
            "write four numbers from 0 to 255, or a name that does not end in digits alone",
        ),
    )
    for holds, message, hint in faults:
        if holds:
            raise InvalidValue(message, hint)
    if "xn--" in host.lower():
        # Nearly no config has such a name, and importing this takes as long as reading a config.
        import idna

        # The HTTP client does the same check, but its error ends the program.
        try:
            idna.decode(host)
        except idna.IDNAError as error:
            raise InvalidValue(f"{name} is not a valid IDNA name: {error}", "check the part with xn--") from None
    return host


def check_authority(text: str) -> str:
    """Check a host with or without a port."""
    host, colon, port = text.rpartition(":") if re.search(r":[^\]]*$", text) else (text, "", "")
    check_host(host)
    if colon and not (re.fullmatch("[1-9][0-9]{0,4}", port) and int(port) <= _LAST_PORT):
        raise InvalidValue(f"{port!r} is not a port", f"write a number from 1 to {_LAST_PORT}, or leave the port out")
    return text


def _check_url(url: str) -> str:
    check_authority(url.split("/")[2])
    return url


def _check_image(image: str) -> str:
    # As in Docker, the part before the first slash is a host if it has a dot or a colon.
    first = image.partition("/")[0]
    if "." in first or ":" in first:
        check_authority(first)
    return image


def _check_image_glob(text: str) -> str:
    # https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider: a star matches any part.
    check_authority(text.partition("/")[0].replace("*", "x"))
    return text


def _check_registry(text: str) -> str:
    if text != text.lower():
        raise InvalidValue(f"the registry {text!r} has capital letters", f"write {text.lower()}")
    return check_authority(text)


def _check_unproxied(text: str) -> str:
    """Check an entry of NO_PROXY: `*`, a host, a domain that begins with a dot or a star, an address or a network."""
    if "/" in text or text.count(":") > 1:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise InvalidValue(f"{text!r} is not a network", "write it as 10.0.0.0/8, a host as example.com") from None
    elif text != "*":
        # Programs allow a star in different places, but no program allows other characters than those of a name.
        check_authority(text.removeprefix("*").removeprefix(".").replace("*", "x"))
    return text


# Without user, query and fragment: they may hold a secret, and the URL is in the tree, in the lock and on the machine.
_PATH: Final = r'(/[!"$->@-~]*)?'
UrlPath = Annotated[str, pydantic.StringConstraints(pattern=r"^/[!\"$->@-~]*$", max_length=2000)]
HttpsUrl = Annotated[
    str,
    pydantic.StringConstraints(pattern=rf"^https://[^/?#@\s\\]+{_PATH}$", max_length=2000),
    pydantic.AfterValidator(_check_url),
    pydantic.Field(json_schema_extra={"pattern": rf"^https://{_HOST}{_PATH}$"}),
]
# Without user and password: they would be on every node.
ProxyUrl = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^https?://[^/?#@\s\\]+/?$", max_length=300),
    pydantic.AfterValidator(_check_url),
    pydantic.Field(json_schema_extra={"pattern": rf"^https?://{_HOST}/?$"}),
]
HostAndPort = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[^/?#@\s\\]+$", max_length=2000),
    pydantic.AfterValidator(check_authority),
    pydantic.Field(json_schema_extra={"pattern": rf"^{_HOST}$"}),
]
DnsName = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[^/?#@\s\\]+$", max_length=2000),
    pydantic.AfterValidator(check_host),
    pydantic.Field(json_schema_extra={"pattern": rf"^{_LABEL}(\.{_LABEL})*$"}),
]
# A registry is the name of a folder on the machine: lower case, so that no registry has two folders.
Registry = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[^/?#@\s\\]+$", max_length=2000),
    pydantic.AfterValidator(_check_registry),
    pydantic.Field(json_schema_extra={"pattern": rf"^{_HOST.replace('A-Z', '')}$"}),
]
# https://github.com/distribution/reference: the part after the registry.
_COMPONENT: Final = r"[a-z0-9]+([._-]+[a-z0-9]+)*"
_TAG: Final = r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?"


def _check_has_registry(image: object) -> object:
    if isinstance(image, str) and re.fullmatch(_COMPONENT + _TAG, image):
        raise InvalidValue(f"{quoted(image)} has no registry", f"write docker.io/library/{image} for Docker Hub's")
    return image


ImageRef = Annotated[
    str,
    pydantic.StringConstraints(pattern=rf"^[a-z0-9.-]+(:[0-9]+)?(/{_COMPONENT})+{_TAG}$", max_length=500),
    pydantic.AfterValidator(_check_image),
    pydantic.BeforeValidator(_check_has_registry),
]


def _check_tagged(image: str) -> str:
    if "@" in image:
        raise InvalidValue(
            f"{image} has a digest, but a tarball has only a tag",
            "write the name and the tag that the tarball has; the lock pins the tarball by its sha256",
        )
    return image


TaggedImage = Annotated[ImageRef, pydantic.AfterValidator(_check_tagged)]
Unproxied = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[A-Za-z0-9.*:/-]+$", max_length=300),
    pydantic.AfterValidator(_check_unproxied),
]
ImageGlob = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[A-Za-z0-9.*:/_-]+$", max_length=500),
    pydantic.AfterValidator(_check_image_glob),
]
