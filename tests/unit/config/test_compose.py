"""Files that extend each other and values from the command line: what wins, where it was written, what is refused."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imagegen.base.errors import ConfigError
from imagegen.config.load import MAX_FILES, MAX_LEVELS, compose, leading_path
from imagegen.config.yaml import MAX_VALUES, Place, dotted, read_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imagegen.config.yaml import Document, YamlPath


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, which is the root of a repository; what lies beside it does not belong to it."""
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (tmp_path / "outside.yaml").write_text("a: outside\n")
    monkeypatch.chdir(root)
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))


def composed(root: Path, top: str, *sets: str, texts: Sequence[YamlPath] = ()) -> Document:
    return compose((root / top).relative_to(root), sets, is_text=lambda path: path in texts)


def refused(root: Path, top: str, *sets: str, texts: Sequence[YamlPath] = ()) -> list[tuple[str, int, str, str]]:
    with pytest.raises(ConfigError) as caught:
        composed(root, top, *sets, texts=texts)
    assert all(problem.hint for problem in caught.value.problems)
    return [(problem.file, problem.line, problem.path, problem.message) for problem in caught.value.problems]


def test_a_plain_config_is_the_file_itself(repository: Path) -> None:
    write(repository, {"config.yaml": "a: 1\nb: [2]\n"})
    document = composed(repository, "config.yaml")
    assert document == read_yaml((repository / "config.yaml").relative_to(repository))
    assert (document.elsewhere, document.sets) == ({}, ())


@pytest.mark.parametrize("text", ["", "- a\n", "null\n", "a\n"])
def test_what_is_no_config_is_left_to_its_reader(repository: Path, text: str) -> None:
    write(repository, {"config.yaml": text})
    assert composed(repository, "config.yaml").data == read_yaml(repository / "config.yaml").data


def test_layers_merge_and_each_value_has_its_place(repository: Path) -> None:
    write(
        repository,
        {
            "configs/config.yaml": """\
                extends: [../shared/base.yaml, more.yaml]
                map:
                  own: 1
                gone: null
                """,
            "shared/base.yaml": """\
                map:
                  base: 1
                  both: base
                  list: [1, 2, 3]
                gone: {a: 1}
                again: {a: 1}
                """,
            "configs/more.yaml": """\
                again: null
                map: {both: more, list: [9]}
                """,
        },
    )
    document = composed(repository, "configs/config.yaml", "again.b=2", "map.list[0]=8", "again.c.d=[x]")
    assert document.data == {
        "map": {"base": 1, "both": "more", "list": [8], "own": 1},
        "again": {"b": 2, "c": {"d": ["x"]}},
    }
    assert {dotted(path): str(document.place(path)) for path in document.lines} == {
        "": "configs/config.yaml:1",
        "map": "configs/more.yaml:2",
        "map.base": "shared/base.yaml:2",
        "map.both": "configs/more.yaml:2",
        "map.list": "configs/more.yaml:2",
        "map.list[0]": "--set map.list[0]",
        "map.own": "configs/config.yaml:3",
        "again": "--set again.b",
        "again.b": "--set again.b",
        "again.c": "--set again.c.d",
        "again.c.d": "--set again.c.d",
        "again.c.d[0]": "--set again.c.d",
    }
    assert not [place for place in document.elsewhere.values() if place.file == document.file]
    problem = document.problem(("map", "base", "deeper"), "m", "h")
    assert (problem.file, problem.line, problem.path) == ("shared/base.yaml", 2, "map.base.deeper")
    assert document.place(("map", "not there")) == Place("configs/more.yaml", 2)
    assert str(document.problem(("again", "b"), "m")) == "--set again.b: m"


def test_a_shared_base_does_not_undo_what_stands_over_it(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        repository,
        {
            "config.yaml": "extends: [one.yaml, two.yaml, base.yaml]\n",
            "one.yaml": "extends: base.yaml\na: one\nb: one\n",
            "two.yaml": "extends: ./base.yaml\nb: two\n",
            "base.yaml": "a: base\nb: base\nc: base\n",
        },
    )
    read: list[str] = []

    def counted(path: Path) -> Document:
        read.append(str(path))
        return read_yaml(path)

    monkeypatch.setattr("imagegen.config.load.read_yaml", counted)
    assert composed(repository, "config.yaml").data == {"a": "one", "b": "two", "c": "base"}
    assert sorted(read) == ["base.yaml", "config.yaml", "one.yaml", "two.yaml"]


def test_sets_win_in_their_order_and_are_recorded(repository: Path) -> None:
    write(repository, {"config.yaml": "extends: base.yaml\na: 1\n", "base.yaml": "b: {c: 1, d: 1}\n"})
    document = composed(
        repository, "config.yaml", "b.c=2", "b={e: 3}", "a=4", "a=5", "b.f=6", 'tags["a.b/c=d"]=x', "g=", "h={}"
    )
    assert document.data == {"a": 5, "b": {"e": 3, "f": 6}, "tags": {"a.b/c=d": "x"}, "h": {}}
    assert document.sets == (
        ("b", {"e": 3}),
        ("a", 5),
        ("b.f", 6),
        ('tags["a.b/c=d"]', "x"),
        ("g", None),
        ("h", {}),
    )


@pytest.mark.parametrize(
    ("said", "plain", "text"),
    [
        ("2025", 2025, "2025"),
        ('"2025"', "2025", "2025"),
        ("'it''s'", "it's", "it's"),
        ("true", True, "true"),
        ("a=b", "a=b", "a=b"),
        ("https://x.example.com/y#z", "https://x.example.com/y#z", "https://x.example.com/y#z"),
        ("[a, {b: 1}]", ["a", {"b": 1}], "[a, {b: 1}]"),
    ],
)
def test_values_of_sets(repository: Path, said: str, plain: Any, text: str) -> None:  # noqa: ANN401 - any value
    write(repository, {"config.yaml": "a: 1\n"})
    assert composed(repository, "config.yaml", f"b.c={said}").data == {"a": 1, "b": {"c": plain}}
    assert composed(repository, "config.yaml", f"b.c={said}", texts=[("b", "c")]).data == {"a": 1, "b": {"c": text}}


def test_null_takes_away(repository: Path) -> None:
    write(repository, {"config.yaml": "a: 1\nb: {c: 2, d: 3}\n"})
    for said in ("b.c=null", "b.c=~", "b.c="):
        assert composed(repository, "config.yaml", said).data == {"a": 1, "b": {"d": 3}}
    for said, text in (("b.c=null", None), ("b.c=~", None), ("b.c=", ""), ('b.c="null"', "null")):
        expected = {"a": 1, "b": {"d": 3} if text is None else {"c": text, "d": 3}}
        assert composed(repository, "config.yaml", said, texts=[("b", "c")]).data == expected


@pytest.mark.parametrize(
    ("said", "shown", "message"),
    [
        ("name", "--set name", "has no value"),
        ("=1", "--set ", "is not a valid path of a value"),
        ("a..b=1", "--set a..b", "is not a valid path of a value"),
        (".a=1", "--set .a", "is not a valid path of a value"),
        ("a[x]=1", "--set a[x]", "is not a valid path of a value"),
        ("a[-1]=1", "--set a[-1]", "is not a valid path of a value"),
        ("a[0]b=1", "--set a[0]b", "is not a valid path of a value"),
        ("a b=1", "--set a b", "is not a valid path of a value"),
        (f"a{'.a' * 20}=1", f"--set a{'.a' * 20}", "is a path of more than 20 keys"),
        ("extends=x.yaml", "--set extends", "can be set in a file only"),
        ("list[2]=1", "--set list[2]", "list has 2 items, counted from 0"),
        ("single[1]=1", "--set single[1]", "single has 1 item, counted from 0"),
        ("gone[0]=1", "--set gone[0]", "gone is not a list"),
        ("[0]=1", "--set [0]", "the config is not a list"),
        ("name.x=1", "--set name.x", "name is not a map, so no key can be set in it"),
        ("list.x=1", "--set list.x", "list is not a map, so no key can be set in it"),
        ("none.x=1", "--set none.x", "none is not a map, so no key can be set in it"),
        ("a=b: 1", "--set a", "a list or a map needs brackets here"),
        ("a=- 1", "--set a", "a list or a map needs brackets here"),
        ("a=&x 1", "--set a", "cannot be used: anchors and aliases are not allowed"),
        ("a={b: 1, b: 2}", "--set a", "cannot be used: duplicate key"),
        ("a=\x1b", "--set", "is not a text file: the character U+001B is not allowed"),
        ("a=\udcff", "--set", "is not a text file: byte 0xed is not UTF-8"),
        ("a=" + "[" * 21 + "]" * 21, "--set a", "has more than 20 levels"),
    ],
)
def test_sets_that_cannot_be(repository: Path, said: str, shown: str, message: str) -> None:
    write(repository, {"config.yaml": "name: n\nlist: [1, 2]\nsingle: [1]\nnone: []\n"})
    # Another that is wrong is told of in the same breath.
    assert refused(repository, "config.yaml", said, "z")[:1] == [(shown, 0, "", message)]
    assert len(refused(repository, "config.yaml", said, "z")) == 2


def test_quotes_around_a_text_must_be_whole(repository: Path) -> None:
    write(repository, {"config.yaml": "a: 1\n"})
    ((_, _, _, message),) = refused(repository, "config.yaml", 'b="x" and "y"', texts=[("b",)])
    assert message.startswith("is not valid YAML: ")


@pytest.mark.parametrize(
    ("extends", "path", "message"),
    [
        ("/base.yaml", "extends", "/base.yaml is an absolute path"),
        ("../../outside.yaml", "extends", "../../outside.yaml is outside {root}"),
        ("link.yaml", "extends", "link.yaml is outside {root}"),
        ("folder/../../outside.yaml", "extends", "folder/../../outside.yaml is outside {root}"),
        ("missing.yaml", "extends", "the file configs/missing.yaml does not exist"),
        ("circle.yaml", "extends", "the file configs/circle.yaml does not exist"),
        (".", "extends", "the file configs does not exist"),
        ("x" * 300, "extends", f"the file configs/{'x' * 300} does not exist"),
        ("[missing.yaml, sound.yaml]", "extends[0]", "the file configs/missing.yaml does not exist"),
        ("[sound.yaml, 5]", "extends[1]", "must be a path or a list of paths"),
        ("", "extends", "must be a path or a list of paths"),
        ("''", "extends", "must be a path or a list of paths"),
        ("{a: 1}", "extends", "must be a path or a list of paths"),
        ("2026-11-18", "extends", "must be a path or a list of paths"),
        ("config.yaml", "extends", "extends itself: configs/config.yaml -> configs/config.yaml"),
    ],
)
def test_extends_that_cannot_be(repository: Path, extends: str, path: str, message: str) -> None:
    write(repository, {"configs/config.yaml": f"a: 1\nextends: {extends}\n", "configs/sound.yaml": "a: 1\n"})
    (repository / "configs" / "link.yaml").symlink_to("../../outside.yaml")
    (repository / "configs" / "circle.yaml").symlink_to("circle.yaml")
    (repository / "configs" / "folder").symlink_to("..")
    wanted = message.format(root=repository.resolve())
    assert refused(repository, "configs/config.yaml") == [("configs/config.yaml", 2, path, wanted)]


def test_the_nearest_repository_bounds(repository: Path) -> None:
    (repository.parent / ".git").mkdir()
    write(repository, {"config.yaml": "extends: ../outside.yaml\n"})
    message = f"../outside.yaml is outside {repository.resolve()}"
    assert refused(repository, "config.yaml") == [("config.yaml", 1, "extends", message)]


def test_all_that_is_wrong_is_told_at_once(repository: Path) -> None:
    write(
        repository,
        {
            "config.yaml": "extends:\n  - one.yaml\n  - two.yaml\n  - three.yaml\n  - four.yaml\n",
            "one.yaml": "a: 1\na: 2\n",
            "two.yaml": "- a\n",
            "three.yaml": "extends: [missing.yaml, one.yaml]\n",
            "four.yaml": "a: " + "[" * 21,
        },
    )
    with pytest.raises(ConfigError) as caught:
        composed(repository, "config.yaml")
    assert [str(problem).partition("\n")[0] for problem in caught.value.problems] == [
        "config.yaml:5: extends[3]: four.yaml has more than 20 levels",
        "one.yaml:2: a: duplicate key",
        "three.yaml:1: extends[0]: the file missing.yaml does not exist",
        "two.yaml:1: must be a map",
    ]


def test_a_circle_names_its_files(repository: Path) -> None:
    write(
        repository,
        {
            "config.yaml": "extends: one.yaml\n",
            "one.yaml": "extends: sub/two.yaml\n",
            "sub/two.yaml": "a: 1\nextends: ../one.yaml\n",
        },
    )
    chain = "one.yaml -> sub/two.yaml -> one.yaml"
    assert refused(repository, "config.yaml") == [("sub/two.yaml", 2, "extends", f"extends itself: {chain}")]


@pytest.mark.parametrize(("levels", "fine"), [(MAX_LEVELS, True), (MAX_LEVELS + 1, False)])
def test_levels_are_bounded(repository: Path, levels: int, fine: bool) -> None:
    write(repository, {f"{level}.yaml": f"extends: {level + 1}.yaml\n" for level in range(levels)})
    write(repository, {f"{levels}.yaml": "a: deepest\n"})
    if fine:
        assert composed(repository, "0.yaml").data == {"a": "deepest"}
    else:
        message = "more than 8 levels of files extend each other"
        assert refused(repository, "0.yaml") == [(f"{levels - 1}.yaml", 1, "extends", message)]


@pytest.mark.parametrize(("more", "fine"), [(MAX_FILES - 1, True), (MAX_FILES, False)])
def test_files_are_bounded(repository: Path, more: int, fine: bool) -> None:
    names = [f"{number}.yaml" for number in range(more)]
    write(repository, {name: f"a{name[:-5]}: 1\n" for name in names} | {"config.yaml": f"extends: {names}\n"})
    if fine:
        assert len(composed(repository, "config.yaml").data) == more
    else:
        message = "more than 32 files make up one config"
        assert refused(repository, "config.yaml") == [("config.yaml", 1, f"extends[{more - 1}]", message)]


def test_values_of_all_files_are_bounded(repository: Path) -> None:
    numbers = "1," * (MAX_VALUES - 10)
    write(repository, dict.fromkeys(("one.yaml", "two.yaml"), f"a: [{numbers}]\n"))
    write(repository, {"three.yaml": "a: 1\n", "config.yaml": "extends: [one.yaml, two.yaml, three.yaml]\n"})
    message = "the files that make up one config have more than 20000 values"
    assert refused(repository, "config.yaml") == [("config.yaml", 1, "extends[2]", message)]


def test_without_a_repository_the_folder_of_the_config_bounds(repository: Path) -> None:
    (repository / ".git").rmdir()
    write(
        repository,
        {
            "configs/down.yaml": "extends: sub/base.yaml\n",
            "configs/up.yaml": "extends: ../base.yaml\n",
            "configs/sub/base.yaml": "a: 1\n",
            "base.yaml": "a: 1\n",
        },
    )
    assert composed(repository, "configs/down.yaml").data == {"a": 1}
    message = f"../base.yaml is outside {(repository / 'configs').resolve()}"
    assert refused(repository, "configs/up.yaml") == [("configs/up.yaml", 1, "extends", message)]


def test_a_link_to_a_folder_does_not_change_which_file_is_meant(repository: Path) -> None:
    write(repository, {"config.yaml": "extends: link/../base.yaml\n", "deep/base.yaml": "a: deep\n", "deep/er/x": ""})
    write(repository, {"base.yaml": "a: beside\n"})
    (repository / "link").symlink_to("deep/er")
    document = composed(repository, "config.yaml")
    assert (document.data, str(document.place(("a",)))) == ({"a": "deep"}, "link/../base.yaml:1")


KEYS = st.text(st.sampled_from("ab.=[]\"'\\ \n") | st.characters(codec="utf-8"), max_size=6)


@given(st.lists(KEYS | st.integers(0, 999_999), min_size=1, max_size=5).map(tuple))
@settings(max_examples=100, deadline=None)
def test_a_path_is_read_as_it_was_written(path: YamlPath) -> None:
    assert leading_path(dotted(path)) == (path, "")


@pytest.mark.parametrize("text", ["", "a.", "a=1", ".a", "a[", 'a["b]'])
def test_what_is_no_path(text: str) -> None:
    path, rest = leading_path(text)
    assert rest or not path


@pytest.mark.parametrize(
    ("own", "place"),
    [
        ("section: {more: 1}", "shared.yaml:2"),
        ("section: {inner: {more: 1}}", "shared.yaml:2"),
        ("section: {value: 2}", "config.yaml:2"),
        ("section: {inner: {value: 2}}", "config.yaml:2"),
        ("section: {value: null}", "config.yaml:2"),
        ("section: {inner: 1}", "config.yaml:2"),
    ],
)
def test_what_a_section_lacks_is_told_where_it_was_last_changed(repository: Path, own: str, place: str) -> None:
    shared = "other: 1\nsection:\n  value: 1\n  inner:\n    value: 1\n"
    write(repository, {"config.yaml": f"extends: shared.yaml\n{own}\n", "shared.yaml": shared})
    assert str(composed(repository, "config.yaml").place(("section", "missing"))) == place
