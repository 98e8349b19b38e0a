"""How fast Longshore is here, beside what the database can do and beside the others.

make bench                                                  all parts
make bench BENCH=--docs                                     the same, into docs/performance.md
.venv/bin/python bench/run.py --quick                       to try it
.venv/bin/python bench/run.py --only throughput,peers --peers pgqueuer
.venv/bin/python bench/run.py --only plain                  plain functions alone
.venv/bin/python bench/run.py --only graph --peers ray,dask  the small graph beside these alone
.venv/bin/python bench/run.py --only sleeping --sleepers 1000000  a million sleeping actors
.venv/bin/python bench/run.py --only actor_peers --peers dbos  messages to actors beside DBOS
.venv/bin/python bench/run.py --only limits,schedules,fairness  what a rule for starts costs
.venv/bin/python bench/run.py --only dashboard --full       pages over ten million jobs
.venv/bin/python bench/run.py --only asks                   an ask at idle, a minute
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from bench.suite import main

    sys.exit(main(__doc__))
