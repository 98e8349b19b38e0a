"""For testing Longshore, and what runs on it.

For users: `run_inline`, in docs/testing.md. `rehearsal` is what `longshore limits try` runs.
Everything else here is for Longshore's own tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longshore.testing.kit import Kit as Kit
    from longshore.testing.kit import SubmittedJob as SubmittedJob
    from longshore.testing.kit import run_inline as run_inline

__all__ = ["Kit", "SubmittedJob", "run_inline"]


def __getattr__(name: str) -> object:
    """The names above are loaded when they are first asked for."""
    if name in __all__:
        from longshore.testing import kit

        return getattr(kit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
