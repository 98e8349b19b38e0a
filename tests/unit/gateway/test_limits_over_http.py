"""Limits over HTTP."""

from __future__ import annotations

from .api import Api

LIMITS = "/dispatcher/limits/"


async def test_a_rule_is_set_listed_and_removed(api: Api) -> None:
    made = await api.call("PUT", f"{LIMITS}tenant%3D*", {"concurrency": 2, "rate": "100/min"})
    assert (made.status, made.json["rate"]["units"]) == (200, 100)
    [rule] = (await api.get(LIMITS)).json["limits"]
    assert (rule["pattern"], rule["concurrency"]) == ("tenant=*", 2)
    assert (await api.call("DELETE", f"{LIMITS}tenant%3D*")).json == {"removed": "tenant=*"}
    assert (await api.call("DELETE", f"{LIMITS}tenant%3D*")).status == 404


async def test_keys_are_listed(api: Api) -> None:
    assert (await api.get(f"{LIMITS}keys/")).json == {"keys": [], "next": None}
    assert (await api.get(f"{LIMITS}keys/?waited_for=true&limit=1")).json["keys"] == []
    assert (await api.get(f"{LIMITS}keys/?limit=0")).status == 400
