"""The SDK's own requests over HTTP: a gateway passes them on to dispatchers, and answers back.

The path names the verb. The body is the message in msgpack, as ZeroMQ carries it, and so is that of
the answer (docs/protocol.md). So an app or a command with `http://` as its address can do whatever
it can over ZeroMQ, and no use case is written twice.
"""

from __future__ import annotations

from math import isnan
from typing import Final

from starlette.responses import Response

from longshore.client.connection import DECISION_S, REOPENING_S
from longshore.errors import InvalidInput, ProtocolError
from longshore.gateway.bodies import OCTETS
from longshore.gateway.operation import Call, off_loop
from longshore.wire.actor_messages import AwaitReplies, Send
from longshore.wire.codec import encode, from_client
from longshore.wire.file_messages import BlobRequest
from longshore.wire.messages import AwaitChange, Request, RerunGroup, RetryGroup, Wait
from longshore.wire.web_messages import WebRequest

_WAITS: Final = (Wait, AwaitReplies, AwaitChange)


def _is_wait(request: Request) -> bool:
    """Whether nothing is lost if its sender does not stay for the answer."""
    return isinstance(request, _WAITS) or (isinstance(request, Send) and request.wait_s > 0)


async def relay(call: Call) -> Response:
    """Passes a request on to a dispatcher."""
    request = await call.body_as(lambda data, _: _decoded(call.name("verb"), data))
    answered = call.connection.relay(request, _within_s(call, request))
    if _is_wait(request):
        answer = await call.unless_gone(answered)
    else:
        answer = await answered
    if answer is None:  # nobody is there to read it, or the gateway stops
        return Response(status_code=204)
    body = await off_loop(lambda: encode(answer)[-1], size=len(answer.answer))
    return Response(body, media_type=OCTETS)


def _decoded(verb: str, data: bytes) -> Request:
    try:
        request = from_client.decode([b"", verb.upper().encode("utf-8", "replace"), data])
    except ProtocolError as error:
        raise InvalidInput(f"{error}; docs/protocol.md lists the requests") from None
    if isinstance(request, WebRequest | BlobRequest):
        raise InvalidInput(f"{verb.upper()} is for gateways alone, which do not pass it on")
    return request


def _within_s(call: Call, request: Request) -> float:
    """How long a dispatcher may take to answer, beside what any request may take."""
    match request:
        case Wait() | AwaitReplies() | Send() | AwaitChange():
            if isnan(request.wait_s):
                raise InvalidInput("wait_s is not a number; give seconds, 0 or more")
            return min(max(request.wait_s, 0.0), call.settings.max_long_poll_s)
        case RerunGroup():
            return DECISION_S
        case RetryGroup():
            return REOPENING_S
        case _:
            return 0.0
