"""The files of `imagegen samples`, compared with what was read and agreed. To update after reading: make golden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_files import compare_golden
from tests.samples_support import AGREED, make, texts

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", AGREED)
def test_samples_are_as_agreed(name: str) -> None:
    samples = make(AGREED[name])
    now = {**texts(samples), "README.md": samples.readme}
    stale = dict.fromkeys((HERE / name).glob("*"))
    compare_golden({**stale, **{HERE / name / file: text for file, text in now.items()}})
