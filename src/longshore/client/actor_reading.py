"""Handlers marked `reads`: they see the committed state, and change nothing."""

from __future__ import annotations

from typing import Any, NoReturn

from longshore.client.actor_context import ActorContext
from longshore.errors import WrongState


class ReadValue:
    """What a handler returned that only reads."""

    def __init__(self, value: object) -> None:
        self.value = value


class ReadContext(ActorContext):
    """The context of a handler that only reads. All that would change something is refused."""

    __slots__ = ()

    def _refuse_change(self, what: str) -> NoReturn:
        raise WrongState(
            f"a handler marked @longshore.reads of actor '{self.type}' called ctx.{what}(…); it "
            "only reads. Do that in a handler without the mark"
        )

    def send(self, to: Any, name: str, /, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self._refuse_change("send")

    def ask(self, to: Any, name: str, /, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self._refuse_change("ask")

    def submit(self, job: Any, *, then: str = "", about: Any = None) -> NoReturn:
        """Refused."""
        self._refuse_change("submit")

    def submit_group(self, group: Any, *, then: str = "", about: Any = None) -> NoReturn:
        """Refused."""
        self._refuse_change("submit_group")

    def callback(self, *, then: str, about: Any = None) -> NoReturn:
        """Refused: it would name a turn that this is not."""
        self._refuse_change("callback")

    def timer(self, name: str, /, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self._refuse_change("timer")

    def clear(self, name: str | None = None) -> NoReturn:
        """Refused."""
        self._refuse_change("clear")

    def become(self, state: str) -> NoReturn:
        """Refused."""
        self._refuse_change("become")

    def pause(self) -> NoReturn:
        """Refused."""
        self._refuse_change("pause")

    def stop(self) -> NoReturn:
        """Refused."""
        self._refuse_change("stop")

    def reply(self, value: Any = None) -> NoReturn:
        """Refused: what the handler returns is the answer."""
        self._refuse_change("reply")

    def refuse(self, message: str) -> NoReturn:
        """Refused: what the handler raises is the answer."""
        self._refuse_change("refuse")
