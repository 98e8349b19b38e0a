"""docs/testing.md, block by block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()
PLUGINS = ("longshore.testing.plugin", "pytest_asyncio.plugin")


def test_every_block_of_the_testing_page_does_what_it_says(tmp_path: Path) -> None:
    app, *tests = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "parcels.py").write_text(app)
    for number, test in enumerate(tests):
        (tmp_path / f"test_block{number}.py").write_text(test)
    words = [word for plugin in PLUGINS for word in ("-p", plugin)]
    words += ["-o", "asyncio_default_fixture_loop_scope=function"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *words],
        # The plugins are named, so that it does not matter what is installed how.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 passed" in done.stdout
    assert len(tests) == 9
