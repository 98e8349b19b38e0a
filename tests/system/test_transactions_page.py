"""docs/transactions.md, block by block, against a real dispatcher and a real database."""

from __future__ import annotations

import re
from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import succeed
from tests.unit.store.lent import GRANTS

PAGE = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text()
PRINTED = [
    ["sent mail for order 1"],
    ["sent mail for order 2"],
    ["sent mail for order 3", "sent mail for order 4"],
]


def test_every_block_of_the_transactions_page_does_what_it_says(
    migrated_postgres_url: str, tmp_path: Path
) -> None:
    app, *scripts = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "shop.py").write_text(app)
    words = ["--app", "shop:app", "--store", migrated_postgres_url]
    words += ["--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    log = tmp_path / "up.log"
    with Process("up", *words, cwd=tmp_path, log=log) as up:
        frontend = up.ready().facts["frontend"]
        env = {"LONGSHORE_CONNECT": frontend, "DATABASE_URL": migrated_postgres_url}
        printed = [sorted(succeed(script, env, tmp_path)) for script in scripts]
    *committed, [rolled_back], [orders] = printed
    assert orders == "[6]"
    assert committed == PRINTED
    assert re.search("is not there after 1 s: .* was rolled back", rolled_back)


def test_the_page_grants_what_is_tested_to_suffice() -> None:
    [grants] = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert grants.split() == GRANTS.split()
