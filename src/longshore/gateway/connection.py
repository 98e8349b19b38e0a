"""How a gateway asks dispatchers: for the holder of the token that a request came with.

Where no tokens are required, most requests are asked for nobody in particular. One that chooses
what a worker runs, or that makes or revokes the tokens that allow it, is asked for somebody without
a token, so that dispatchers refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable

from longshore.client.connection import Connection
from longshore.core.access import NAMELESS_HASH
from longshore.model.job import Submission
from longshore.model.program import FREE_KINDS
from longshore.wire.access_messages import CreateToken, RevokeToken
from longshore.wire.messages import AddToGroup, Request, RetryGroup, Submit, SubmitGroup

_IN_MAPS = tuple(kind.encode() for kind in FREE_KINDS)


class GatewayConnection(Connection):
    """The connection of a gateway to its dispatchers."""

    def _token_for(self, request: Request) -> bytes | None:
        token = super()._token_for(request)
        return NAMELESS_HASH if token is None and _needs_a_token(request) else token


def _needs_a_token(request: Request) -> bool:
    """Whether a request may need a token even where others do not. Dispatchers decide."""
    return isinstance(request, CreateToken | RevokeToken) or may_choose_a_program(request)


def may_choose_a_program(request: Request) -> bool:
    """Whether a request may have a worker run whatever its sender says."""
    match request:
        case Submit(jobs=jobs):
            return _any_free(jobs)
        case SubmitGroup(part=part):
            return _any_free(node.job for node in part.nodes)
        case AddToGroup(nodes=nodes):
            return _any_free(node.job for node in nodes)
        case RetryGroup(args=args):
            return args is not None
        case _:
            return False


def _any_free(jobs: Iterable[Submission]) -> bool:
    """Whether one of these jobs is of a free kind, or has such a kind in its arguments, as maps do.

    More is asked for a stranger than must be: dispatchers judge what it really is.
    """
    return any(job.kind in FREE_KINDS or any(kind in job.args for kind in _IN_MAPS) for job in jobs)
