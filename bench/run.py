"""How fast Longshore is here, beside what the database can do and beside the others.

make bench                                                  less than twenty minutes
make bench BENCH=--docs                                     the same, into docs/performance.md
.venv/bin/python bench/run.py --quick                       to try it
.venv/bin/python bench/run.py --only throughput,peers --peers pgqueuer
.venv/bin/python bench/run.py --only plain                  plain functions alone
.venv/bin/python bench/run.py --only graph --peers ray,dask  the small graph beside these alone
.venv/bin/python bench/run.py --only actors --full          a million sleeping actors
.venv/bin/python bench/run.py --only actors --sleepers 1000000  as many, and else the usual sizes
.venv/bin/python bench/run.py --only asks                   an ask at idle, a minute
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from bench.suite import main

    sys.exit(main(__doc__))
