"""Faults that wait for their request: which is used, how often, and when it counts as met."""

from __future__ import annotations

import dataclasses

from imagegen.rehearsal.network.journal import Injection, Injections
from imagegen.rehearsal.network.messages import Request, Response

OWN, INSTEAD = Response(200, b"own"), Response(503)
ASKED = Request("GET", "ec2.us-east-1.amazonaws.com", "/")


def exchanged(injections: Injections, times: int) -> list[int]:
    return [injections.exchange(ASKED, lambda: OWN).status for _ in range(times)]


def test_a_fault_is_met_as_often_as_it_says_and_the_next_one_after_it() -> None:
    injections = Injections()
    injections.add(Injection("ec2.*", "*", INSTEAD, None, None, 2))
    injections.add(Injection("*", "/", None, lambda _, own: dataclasses.replace(own, status=201), None, 1))
    assert injections.untriggered == 3
    assert exchanged(injections, 4) == [503, 503, 201, 200]
    assert injections.untriggered == 0


def test_a_fault_without_limit_has_to_be_met_once() -> None:
    injection = Injection("*", "*", INSTEAD, None, None, None)
    injections = Injections()
    injections.add(injection)
    assert injections.untriggered == 1
    assert exchanged(injections, 3) == [503, 503, 503]
    assert (injection.triggered, injections.untriggered) == (3, 0)


def test_an_answer_that_a_fault_leaves_alone_was_not_its_moment() -> None:
    moments = iter([None, INSTEAD, None])
    injection = Injection("*", "*", None, lambda _request, _own: next(moments), None, 1)
    injections = Injections()
    injections.add(injection)
    assert exchanged(injections, 3) == [200, 503, 200]
    assert injection.triggered == 1
