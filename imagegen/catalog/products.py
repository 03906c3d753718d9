"""Reads the rows of released products: where each is published, its digest, contents, maker, licence and signer. Pure.

A step names the product that it installs, and the version. Nothing finds either from a URL.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from imagegen.catalog.facts import JsonObject, numbers, table

VERSION: Final = "version"
_UNDERSCORED: Final = "version_with_underscores"


@dataclasses.dataclass(frozen=True)
class DigestForm:
    """How a project publishes the digest of a file, from one version on."""

    address: str
    """Where it is, with {url} and {folder} of the file."""
    form: Literal["digest", "line"]
    """The digest alone, or a line of sha256sum with the name of the file."""
    since: str


@dataclasses.dataclass(frozen=True)
class Signing:
    """Whether the published files are signed, as far as that is known."""

    signed: bool
    what: str
    """The files, in words."""
    by: str = ""
    by_microsoft: str = ""
    """A template of the URL of copies that Microsoft signed."""


@dataclasses.dataclass(frozen=True)
class Product:
    """One row. Placeholders are in braces: {version}, and others to which a step gives values."""

    name: str
    override: str
    """The config's key below `overrides` that gives another address."""
    purl: str
    supplier: str
    licence: str
    url: str = ""
    """The public address of its one file."""
    base: str = ""
    """The public address of the folder with its files, if it has several."""
    file_overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The overrides of single files of the folder, by the files' paths."""
    default: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The config's key of its version, and the version if the config leaves it out."""
    range: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The first Kubernetes minor with which it works, and the first version that has no program."""
    digest: DigestForm | None = None
    release_days: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The table and its rows with the days of releases, if there are any."""
    signing: Signing | None = None
    """None: nobody knows."""
    contents: tuple[JsonObject, ...] = ()
    """The members of ranges of versions."""

    def published_digest(self, url: str, version: str) -> str | None:
        """Where the digest of the file at this URL is. None if the project publishes none for this version."""
        if self.digest is None or numbers(version) < numbers(self.digest.since):
            return None
        return self.digest.address.replace("{url}", url).replace("{folder}", url.rpartition("/")[0])

    def release_day(self, version: str) -> str:
        """The day on which the version was released; empty if no table has it."""
        if not self.release_days:
            return ""
        known = table(self.release_days["table"])[self.release_days["rows"]]
        # The rows of some tables are minors, whose day is that of their first version.
        minor = version.removesuffix(".0") if version.count(".") == 2 else version
        found = known.get(version) or (known.get(minor) if minor != version else None)
        return str(found["released"]) if found else ""

    def template(self, address: str, version: str, values: Mapping[str, str]) -> str:
        """The address as a template of a step: `version` and `values` are the step's own templates."""
        expression = version.removeprefix("{{").removesuffix("}}").strip()
        underscored = f"{{{{ {expression} | replace('.', '_') }}}}"
        for name, text in {**values, VERSION: version, _UNDERSCORED: underscored}.items():
            address = address.replace(f"{{{name}}}", text)
        return address


def find_product(name: str) -> Product | None:
    """The product with this name; None if the catalogue has none."""
    row = table("products")["products"].get(name)
    return None if row is None else _product(name, row)


def find_products() -> Iterator[Product]:
    """All products."""
    return (_product(name, row) for name, row in table("products")["products"].items())


def find_signing(override: str) -> Signing | None:
    """What is known of the signatures of the public files that an override replaces. None: nobody knows."""
    return next((one.signing for one in find_products() if one.override == override), None)


def _product(name: str, row: JsonObject) -> Product:
    digest, signature = row["digest"], row.get("signature")
    given = {key: row[key] for key in ("override", "purl", "supplier", "licence")}
    optional = {
        key: row[key] for key in ("url", "base", "file_overrides", "default", "range", "release_days") if key in row
    }
    return Product(
        name=name,
        digest=DigestForm(digest["address"], digest["form"], digest["since"]) if digest["address"] else None,
        signing=Signing(**{key: value for key, value in signature.items() if key != "source"}) if signature else None,
        contents=tuple(row["contents"]),
        **given,
        **optional,
    )
