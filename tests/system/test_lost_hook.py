"""A worker dies, and its machine can be seen to: the hook runs, for real, once."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.system.conftest import Fleet, await_true, lines


def test_the_hook_runs_for_a_killed_worker_and_not_for_one_that_left(
    fleet: Fleet, tmp_path: Path
) -> None:
    script, told = tmp_path / "hook.py", tmp_path / "told"
    script.write_text(
        "import os, sys\n"
        "names = ('NAME', 'SESSION', 'INSTANCE_ID', 'PUBLIC_IP')\n"
        "words = [os.environ[f'LONGSHORE_WORKER_{name}'] for name in names]\n"
        "open(sys.argv[1], 'a').write(' '.join(words) + '\\n')\n"
    )
    hook = {"on_worker_lost": f"{sys.executable} {script} {told}"}
    dispatcher, other = fleet.dispatcher(**hook), fleet.dispatcher(**hook)
    machine = {"instance_id": "i-0abc", "public_ip": "203.0.113.7"}
    killed, leaver = fleet.worker(dispatcher, **machine), fleet.worker(dispatcher)
    assert leaver.terminate() == 0
    killed.kill()
    await_true(lambda: bool(lines(told)), "the hook ran")
    assert [dispatcher.terminate(), other.terminate()] == [0, 0]
    [line] = lines(told)
    assert line.split() == [line.split()[0], "1", "i-0abc", "203.0.113.7"]
    assert line.split()[0].endswith(f":{killed.pid}")
    # On one machine either of them may be the first to see that the process is gone.
    assert (dispatcher.said() + other.said()).count("on_worker_lost was run") == 1
