"""`imagegen steps` and `imagegen kinds`: lists, and each entry."""

import json
from collections.abc import Callable

from imagegen.plan import loading
from imagegen.steps.kinds import KINDS

STEPS = loading.load_steps()


def test_verbs_list_and_describe(run: Callable[..., tuple[object, str, str]]) -> None:
    for verb, names in (("steps", STEPS), ("kinds", KINDS)):
        code, out, _ = run(verb, "--format", "json")
        assert code == 0
        assert set(json.loads(out)) == set(names)
        for name in names:
            code, out, _ = run(verb, name, "--format", "json")
            assert (code, json.loads(out)["name"]) == (0, name)


def test_steps_are_listed_in_their_order(run: Callable[..., tuple[object, str, str]]) -> None:
    _, out, _ = run("steps")
    names = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert names.index("system") < names.index("containerd") < names.index("kubernetes") < names.index("cloudbase-init")
    assert names[-1] == "scripts"
