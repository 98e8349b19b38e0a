"""The forms of actors: what handlers put into errors and names never breaks a commit."""

from __future__ import annotations

from uuid import UUID

from msgspec import msgpack

from longshore.model.actor import Message, Replied, Reply, ReplyTo, Undelivered
from longshore.model.job import JobError, Reason
from longshore.store.actor_rows import (
    pack_reply,
    reply_message,
    storable_reply,
    undelivered,
    unpack_reply,
    unstorable_message,
)

ID = UUID(int=1)
BROKEN = "bad \ud800 text"


def test_reply_with_text_that_is_none_is_kept_without_it() -> None:
    reply = Reply(ID, error=JobError(Reason.RAISED, BROKEN, "E", BROKEN))
    kept = unpack_reply(pack_reply(reply))
    assert (
        kept
        == storable_reply(reply)
        == Reply(ID, error=JobError(Reason.RAISED, "bad ? text", "E", "bad ? text"))
    )


def test_reply_to_an_actor_has_what_it_asked_about() -> None:
    error = JobError(Reason.RAISED, BROKEN)
    message = reply_message(Reply(ID, error=error), ReplyTo("t", "k", "answer", b"\x01"))
    assert (message.id, message.type, message.key, message.name) == (ID, "t", "k", "answer")
    replied = msgpack.decode(message.args, type=Replied)
    assert replied == Replied(None, JobError(Reason.RAISED, "bad ? text"), b"\x01")


def test_message_that_cannot_be_stored_comes_back_in_a_form_that_can() -> None:
    message = Message(ID, "t", BROKEN, "a\0b", b"\x05")
    assert unstorable_message(message) == f"{BROKEN!r} is not text without NUL characters"
    back = undelivered(message, "why")
    about = msgpack.decode(back.args, type=Undelivered)
    assert about == Undelivered("t", "bad ? text", "ab", b"\x05", "why")
