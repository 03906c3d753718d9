"""How projects publish: where the digest of a file is, in which form, and on which day a version came. Pure."""

import dataclasses
import re
from typing import Literal

from imagegen.catalog.facts import JsonObject, numbers, table


@dataclasses.dataclass(frozen=True)
class DigestForm:
    """Where and how a project publishes the digest of a file."""

    digest: str
    """The address, with {url} and {folder} of the file."""
    form: Literal["digest", "line"]
    """The digest alone, or a line of sha256sum with the name of the file."""

    def address(self, url: str) -> str:
        """Where the digest of the file at this URL is."""
        return self.digest.replace("{url}", url).replace("{folder}", url.rpartition("/")[0])


def find_digest_form(published: str) -> DigestForm | None:
    """How the project of this public URL publishes its digest. None if it publishes none that is known."""
    for row in table("publishing")["digests"].values():
        version = _version(row, published)
        if version and numbers(version) >= numbers(row["since"]):
            return DigestForm(row["digest"], row["form"])
    return None


def find_release_day(published: str) -> str:
    """The day on which the version of this public URL was released; empty if no table has it."""
    for row in table("publishing")["releases"].values():
        if version := _version(row, published):
            known = table(row["table"])[row["rows"]]
            # The rows of some tables are minors, whose day is that of their first version.
            minor = version.removesuffix(".0") if version.count(".") == 2 else version
            found = known.get(version) or (known.get(minor) if minor != version else None)
            return str(found["released"]) if found else ""
    return ""


def _version(row: JsonObject, url: str) -> str:
    """The version in the URL, if the row is about it."""
    before, _, after = row["address"].partition("{version}")
    match = re.fullmatch(f"{re.escape(before)}([0-9][^/]*){re.escape(after)}.*", url)
    return match[1] if match else ""
