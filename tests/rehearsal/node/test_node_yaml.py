"""The YAML that kubeadm and kubelet write and read."""

from __future__ import annotations

import pytest

from imagegen.rehearsal.node.kubeconfig import Access, read_kubeconfig, write_kubeconfig
from imagegen.rehearsal.node.yaml_text import read_yaml_map, yaml_text

VALUE = {
    "text": 'a "b" \\ c: #d',
    "nothing": None,
    "b": {"z": 1, "a": False, "empty": {}},
    "list": ["x", {"k": "v", "l": [1]}, []],
}
TEXT = r"""b:
  a: false
  empty: {}
  z: 1
list:
- "x"
- k: "v"
  l:
  - 1
- []
nothing: null
text: "a \"b\" \\ c: #d"
"""


def test_keys_are_sorted_and_the_values_come_back() -> None:
    assert yaml_text(VALUE) == TEXT
    assert read_yaml_map(TEXT.encode(), "x") == VALUE


def test_an_access_comes_back_from_its_file() -> None:
    access = Access("https://10.0.0.4:6443", b"PEM", certificate_file=r"C:\var\a.pem")
    written = write_kubeconfig(access, cluster="c", user="u", context="x")
    assert read_kubeconfig(written, "kubelet.conf") == access


@pytest.mark.parametrize("text", [b"", b"- a\n", b"clusters: []\n", b"clusters: [{name: ''}]\n", b"a: [\n"])
def test_what_is_no_kubeconfig_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"kubelet\.conf"):
        read_kubeconfig(text, "kubelet.conf")
