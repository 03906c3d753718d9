"""A mirror in memory, and a source whose files are given."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagegen.base.console import Console
from imagegen.fetch.cache import Cache
from imagegen.mirror.images import Place, Source
from imagegen.providers.storage import StoredFile


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Memory:
    """A storage that remembers in which order files came."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.hides_digests = False
        self.losses = 0
        """How often another run is quicker to replace a file."""

    def find(self, path: str) -> StoredFile | None:
        data = self.files.get(path)
        return None if data is None else StoredFile(len(data), "" if self.hides_digests else sha(data))

    def put(self, path: str, file: Path, sha256: str) -> None:
        data = file.read_bytes()
        assert sha(data) == sha256
        self.puts.append(path)
        self.files[path] = data

    def read(self, path: str, limit: int) -> tuple[bytes, str] | None:
        data = self.files.get(path)
        assert data is None or len(data) <= limit
        return None if data is None else (data, sha(data))

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        if self.losses:
            self.losses -= 1
            return False
        old = self.files.get(path)
        assert tag == ("" if old is None else sha(old))
        self.puts.append(path)
        self.files[path] = data
        return True


@dataclasses.dataclass(frozen=True)
class Given(Source):
    """The files by URL; an error in the place of a file is raised, each once."""

    web: dict[str, list[bytes | BaseException]] = dataclasses.field(default_factory=dict)
    asked: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """Each URL with the header that came with it."""

    @contextlib.contextmanager
    def get(self, place: Place, sha256: str, size: int) -> Iterator[Path]:
        address = place.address() if place.address else None
        self.asked.append((place.url, address.authorization if address else ""))
        answers = self.web[place.url]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, BaseException):
            raise answer
        assert (sha(answer), len(answer)) == (sha256, size)
        file = self.parts / sha256
        file.write_bytes(answer)
        yield file


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def given(tmp_path: Path) -> Given:
    console = Console(io.StringIO(), plain=True)
    (tmp_path / "parts").mkdir()
    return Given(Cache(tmp_path, 1, print), tmp_path / "parts", console, threading.Event())
