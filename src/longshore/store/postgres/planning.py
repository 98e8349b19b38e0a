"""How PostgreSQL is to plan statements: so that no plan gets slow when a table grows."""

from __future__ import annotations

from typing import Final

STEADY: Final = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Settings under which each hot statement has exactly one plan."""
BY_INDEX: Final = {"enable_seqscan": "off", "jit": "off"}
"""Settings under which a read goes by an index wherever there is one.

A plan that was made while the tables were small may be used again when they are large.
"""
