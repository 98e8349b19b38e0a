"""Jobs that give back what they are given, one for each type that survives the trip."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

import msgspec

import longshore

app = longshore.App("carried")


class Colour(enum.Enum):
    """What is stored is the value."""

    RED = "red"


@dataclass
class Box:
    """A dataclass in a dataclass is one again."""

    width: int
    inner: Box | None = None


class Page(msgspec.Struct):
    """A Struct."""

    url: str
    tags: set[str] = set()


@app.job
async def dataclass_(value: Box) -> Box:
    assert isinstance(value, Box)
    return value


@app.job
async def struct(value: Page) -> Page:
    assert isinstance(value, Page)
    return value


@app.job
async def datetime_(value: datetime) -> datetime:
    assert isinstance(value, datetime)
    return value


@app.job
async def bytes_(value: bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


@app.job
async def enum_(value: Colour) -> Colour:
    assert isinstance(value, Colour)
    return value


@app.job
async def uuid(value: UUID) -> UUID:
    assert isinstance(value, UUID)
    return value


@app.job
async def set_(value: set[int]) -> set[int]:
    assert isinstance(value, set)
    return value


@app.job
async def decimal(value: Decimal) -> Decimal:
    assert isinstance(value, Decimal)
    return value
