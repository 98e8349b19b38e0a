"""Errors that came over the wire have the class of their code."""

from __future__ import annotations

from longshore.errors import InvalidInput, NotFound, from_code


class NoCodeOfItsOwn(InvalidInput):
    """Raised inside one process only, as the adapters of files do."""


def test_an_error_over_the_wire_is_of_the_class_that_has_its_code() -> None:
    assert type(from_code(NoCodeOfItsOwn.code, "no")) is InvalidInput
    assert type(from_code(NotFound.code, "no")) is NotFound
