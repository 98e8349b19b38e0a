"""Errors for attributes that an object does not have: they say what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

RESULT_OF_A_MAP = {"result": "its jobs have one each: `.results` stands for the list of them"}
RESULTS_OF_A_JOB = {"results": "it is one job: `.result` stands for what it returns"}


def no_attribute(who: object, name: str, advice: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that `who` does not have, with advice if there is some."""
    hint = f": {advice[name]}" if name in advice else ""
    return AttributeError(f"{who!r} has no '{name}'{hint}", name=name, obj=who)
