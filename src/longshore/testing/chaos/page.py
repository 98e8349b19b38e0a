"""What a run has shown, as one page of HTML with plots: no script, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import count

from longshore.testing.chaos.checker import Recovery, Verdict
from longshore.testing.chaos.report import PROMISES, Report, by_deed, headline, notes, sort_of
from longshore.testing.chaos.rules import RULES

WIDTH, HEIGHT, LEFT, BELOW = 960, 180, 46, 24
COLOURS = {
    "dispatcher": "#b45309",
    "worker": "#1d4ed8",
    "gateway": "#7c3aed",
    "plain": "#0e7490",
    "web": "#0f766e",
    "postgres": "#be123c",
    "primary": "#be123c",
    "standby": "#9f1239",
}
LINK = "#64748b"
ROW = 14
MOST_BINS = 120
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --quiet: #6b7280; --line: #d1d5db;
  --back: #fff; --good: #15803d; --bad: #b91c1c; --bar: #60a5fa }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --quiet: #9ca3af; --line: #374151;
  --back: #111827; --good: #4ade80; --bad: #f87171; --bar: #3b82f6 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 1000px; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right } .good { color: var(--good) } .bad { color: var(--bad) }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif }
svg text { fill: var(--quiet) } .axis { stroke: var(--line) } .bar { fill: var(--bar) }
code { overflow-wrap: anywhere }
"""


def html(report: Report) -> str:
    """The whole page."""
    verdict = report.verdict
    mood = "good" if verdict.is_kept else "bad"
    parts = [
        f'<h1 class="{mood}">{escape(headline(report))}</h1>',
        f"<p>Seed {report.seed}, {report.seconds:g} s on {escape(report.store)}: "
        f"{escape(report.shape)}. Again: <code>{escape(report.again)}</code></p>",
        _broken(verdict),
        "<h2>Outcomes that clients heard of</h2>",
        outcomes(verdict),
        "<h2>Faults</h2>",
        faults(verdict),
        "<h2>From the end of a fault to the next outcome</h2>",
        recoveries(verdict),
        _struck(verdict),
        _rules(verdict),
        _work(verdict),
        f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in notes(report))}</ul>",
    ]
    head = f'<meta charset="utf-8"><title>chaos, seed {report.seed}</title>'
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def outcomes(verdict: Verdict) -> str:
    """How many outcomes each moment of the run brought."""
    times = [at for at in verdict.outcomes_at_s if at >= 0]
    end = max([verdict.storm_s + verdict.drain_s, 1.0, *times])
    width_s = end / min(MOST_BINS, max(1, int(end)))
    bins = [0] * (int(end / width_s) + 1)
    for at in times:
        bins[int(at / width_s)] += 1
    most = max([1, *bins])
    step = (WIDTH - LEFT) / (end / width_s)
    bars = []
    for place, many in enumerate(bins):
        high = many / most * (HEIGHT - BELOW)
        bars.append(
            f'<rect class="bar" x="{LEFT + place * step:.1f}" y="{HEIGHT - BELOW - high:.1f}" '
            f'width="{max(step - 1, 0.5):.1f}" height="{high:.1f}"><title>{many} from '
            f"{place * width_s:.0f} s on</title></rect>"
        )
    words = f"{most / width_s:.0f}/s"
    calm = _x(verdict.storm_s, end)
    line = f'<line class="axis" x1="{calm:.1f}" x2="{calm:.1f}" y1="0" y2="{HEIGHT - BELOW}"/>'
    label = f'<text x="{calm + 3:.1f}" y="10">calm</text>'
    return _svg(HEIGHT, [*_axis(end, HEIGHT), _left(words, 10), *bars, line, label])


def faults(verdict: Verdict) -> str:
    """A line for each part that was struck, and when."""
    whom = sorted({one.whom for one in verdict.recoveries}, key=lambda name: (">" in name, name))
    rows = dict(zip(whom, count(), strict=False))
    end = max([verdict.storm_s + verdict.drain_s, 1.0])
    height = len(rows) * ROW + BELOW + 4
    left = 170
    scale = (WIDTH - left) / end
    drawn = [
        f'<text x="0" y="{row * ROW + 11}">{escape(name)}</text>' for name, row in rows.items()
    ]
    for one in verdict.recoveries:
        colour = COLOURS.get(sort_of(one.whom), LINK)
        drawn.append(
            f'<rect x="{left + one.at_s * scale:.1f}" y="{rows[one.whom] * ROW + 2}" '
            f'width="{max(2.0, one.lasted_s * scale):.1f}" height="{ROW - 4}" fill="{colour}">'
            f"<title>{escape(_words(one))}</title></rect>"
        )
    return _svg(height, [*_axis(end, height, left), *drawn])


def recoveries(verdict: Verdict) -> str:
    """A dot for each fault: when it was over, and how long it took from there."""
    known = [one for one in verdict.recoveries if one.recovered_s is not None]
    end = max([verdict.storm_s + verdict.drain_s, 1.0])
    most = max([0.5, *(one.recovered_s or 0.0 for one in known)])
    dots = []
    for one in known:
        high = (one.recovered_s or 0.0) / most * (HEIGHT - BELOW - 8)
        dots.append(
            f'<circle cx="{_x(one.at_s + one.lasted_s, end):.1f}" '
            f'cy="{HEIGHT - BELOW - high:.1f}" r="3.5" '
            f'fill="{COLOURS.get(sort_of(one.whom), LINK)}">'
            f"<title>{escape(_words(one))}</title></circle>"
        )
    return _svg(HEIGHT, [*_axis(end, HEIGHT), _left(f"{most:.1f} s", 10), *dots])


def _words(one: Recovery) -> str:
    recovered = "never" if one.recovered_s is None else f"{one.recovered_s:.2f} s"
    what = one.deed.replace("_", " ")
    return f"{what} {one.whom} at {one.at_s:.1f} s for {one.lasted_s:.1f} s; recovered {recovered}"


def _svg(height: int, parts: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _axis(end: float, height: int, left: int = LEFT) -> Iterator[str]:
    """The time, below."""
    y = height - BELOW
    yield f'<line class="axis" x1="{left}" x2="{WIDTH}" y1="{y}" y2="{y}"/>'
    for part in range(6):
        x = left + part / 5 * (WIDTH - left)
        anchor = "end" if part == 5 else "middle"
        yield f'<text x="{x:.0f}" y="{y + 15}" text-anchor="{anchor}">{end * part / 5:.0f} s</text>'


def _left(words: str, y: int) -> str:
    return f'<text x="0" y="{y}">{words}</text>'


def _x(at_s: float, end: float) -> float:
    return LEFT + at_s / end * (WIDTH - LEFT)


def _broken(verdict: Verdict) -> str:
    if verdict.is_kept:
        return ""
    rows = [(one.rule, one.promise, one.subject, one.words) for one in verdict.broken]
    return _table("What is broken", ("rule", "promise", "what", "how that is known"), rows)


def _struck(verdict: Verdict) -> str:
    rows = [
        (deed.replace("_", " "), sort, len(some), max(one.lasted_s for one in some))
        for (deed, sort), some in by_deed(verdict).items()
    ]
    return _table("What was broken on purpose", ("what", "whom", "times", "longest, s"), rows)


def _rules(verdict: Verdict) -> str:
    rows = [(r, f"{p} {PROMISES[p]}", verdict.counts[r]) for r, (p, _) in RULES.items()]
    return _table("What was found", ("rule", "promise", "broken"), rows)


def _work(verdict: Verdict) -> str:
    rows = [(sort, *many) for sort, many in verdict.sorts.items()]
    return _table("What was asked for", ("work", "accepted", "finished"), rows)


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f'<td class="n">{value:,g}</td>'
    return f"<td>{escape(str(value))}</td>"
