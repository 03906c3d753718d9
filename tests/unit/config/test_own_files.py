"""The files that a config names are read beside the file that names them, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.config.load import compose
from imagegen.config.own_files import OwnFile, read_own_files
from imagegen.config.yaml import Document

if TYPE_CHECKING:
    from pathlib import Path

KEY = ("scripts", 0)


def document(folder: Path, text: str = "scripts: [a.ps1]\n") -> Document:
    (folder / "config.yaml").write_text(text)
    return compose(folder / "config.yaml", is_text=lambda _: False)


def test_a_file_is_read_with_its_exact_bytes(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.ps1").write_bytes(b"\xef\xbb\xbf1\r\n\xff")
    found = read_own_files(document(tmp_path), {KEY: "folder/a.ps1"})
    assert found == ({"scripts[0]": OwnFile("a.ps1", b"\xef\xbb\xbf1\r\n\xff")}, [])


def test_a_path_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "base/base.yaml").write_text("scripts: [a.ps1]\n")
    (tmp_path / "base/a.ps1").write_bytes(b"of the base")
    (tmp_path / "a.ps1").write_bytes(b"of the config")
    extending = document(tmp_path, "extends: base/base.yaml\n")
    assert read_own_files(extending, {KEY: "a.ps1"})[0] == {"scripts[0]": OwnFile("a.ps1", b"of the base")}
    set_by_option = compose(tmp_path / "config.yaml", ["scripts=[a.ps1]"], is_text=lambda _: False)
    assert read_own_files(set_by_option, {KEY: "a.ps1"})[0] == {"scripts[0]": OwnFile("a.ps1", b"of the config")}


def make_link(folder: Path) -> None:
    (folder / "config").mkdir()
    (folder / "a.ps1").write_bytes(b"")
    (folder / "config/a.ps1").symlink_to(folder / "a.ps1")


def make_loop(folder: Path) -> None:
    (folder / "config").mkdir()
    (folder / "config/a.ps1").symlink_to(folder / "config/a.ps1")


def make_folder(folder: Path) -> None:
    (folder / "config/a.ps1").mkdir(parents=True)


def make_large(folder: Path) -> None:
    (folder / "config").mkdir()
    (folder / "config/a.ps1").write_bytes(bytes(256 * 1024 + 1))


def make_nothing(folder: Path) -> None:
    (folder / "config").mkdir()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_nothing, "the file {file} does not exist"),
        (make_link, "{file} is outside {folder}"),
        (make_loop, "{file} cannot be read: Too many levels of symbolic links"),
        (make_folder, "{file} is a folder, not a regular file"),
        (make_large, "{file} is too large: it has 262145 bytes, at most 262144 are allowed"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_problem_at_its_key(tmp_path: Path, make: object, message: str) -> None:
    assert callable(make)
    make(tmp_path)
    folder = tmp_path / "config"
    files, problems = read_own_files(document(folder), {KEY: "a.ps1"})
    assert files == {}
    said = message.format(file=folder / "a.ps1", folder=folder)
    assert [(problem.path, problem.line, problem.message) for problem in problems] == [("scripts[0]", 1, said)]
    assert problems[0].hint


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.ps1").write_bytes(bytes(256 * 1024))
    assert read_own_files(document(tmp_path), {KEY: "a.ps1"})[1] == []
