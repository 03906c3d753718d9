"""Compares what the plan says of an archive with what libarchive's bsdtar leaves on the disk. tar.exe is a bsdtar."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import VerificationError
from imagegen.fetch.lock import LockedArtifact
from imagegen.fetch.request import ArtifactRequest
from imagegen.inspect.archive import find_type, read_members
from imagegen.plan.fitting import UnfitError, fit
from imagegen.steps.kinds import EXTRACTABLE
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_URL: Final = "https://tools.example/tool"
_SHA: Final = "0" * 64
_REQUEST: Final = ArtifactRequest("tool", _URL, None, "archive", "overrides.tool_url", _URL)
# Windows has no owners, modes and attributes of this kind: what bsdtar may do with them is no part of the question.
_UNIX: Final = ("-o", "-m", "--no-xattrs", "--no-acls", "--no-fflags")
_DEADLINE_S: Final = HANG_S


@dataclasses.dataclass(frozen=True)
class Judge:
    """One archive, and folders for it."""

    bsdtar: str
    folder: Path

    def judge(self, data: bytes, strip: int) -> list[dict[str, object]] | None:
        """The files that the plan lists. None: imagegen refuses the archive. Something else on the disk is an error."""
        file = self.folder / "archive"
        file.write_bytes(data)
        form = find_type(data[:1024])
        if form not in ("zip", "tar.gz", "tar"):
            return None
        try:
            found = read_members(file, form, "tool")
            entry = LockedArtifact.model_construct(
                url=_URL, sha256=_SHA, size=1, members=found.digests, sizes=found.sizes, dotted=found.dotted
            )
            fields = {"artifact": "tool", "into": "C:\\tool", "strip": strip}
            [(_, fitted)] = fit("archive", fields, entry, _REQUEST)
        except (VerificationError, UnfitError):
            return None
        listed: list[dict[str, object]] = fitted["members"]
        expected = {str(one["path"]).replace("\\", "/"): (one["sha256"], one["size"]) for one in listed}
        assert self._unpack(["--strip-components", str(fitted["strip"])]) == expected
        # A file that is taken alone is named without a leading `./`.
        alone = next((path for path in reversed(found.digests) if re.fullmatch(EXTRACTABLE, path)), None)
        if alone:
            assert self._unpack([alone]) == {alone: (found.digests[alone], found.sizes[alone])}
        return listed

    def _unpack(self, words: Sequence[str]) -> dict[str, tuple[str, int]]:
        """The digest and size of each file that bsdtar leaves."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        argv = [self.bsdtar, "-xf", str(self.folder / "archive"), "-C", str(out), *_UNIX, *words]
        done = subprocess.run(  # noqa: S603  # a program of this system
            argv, env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, timeout=_DEADLINE_S, check=False
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        found = {}
        for folder, _, names in os.walk(out):
            for name in names:
                path = self.folder / folder / name
                path.chmod(0o600)
                data = path.read_bytes()
                found[str(path.relative_to(out))] = hashlib.sha256(data).hexdigest(), len(data)
        return found
