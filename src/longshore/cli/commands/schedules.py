"""`longshore schedules`: make schedules, look at them, pause, trigger, backfill and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

from longshore.cli.commands.submit import arguments_of
from longshore.cli.file_input import file_bytes, file_name
from longshore.cli.options import Whole, ask, client_options, duration, examples, moment
from longshore.cli.view.schedules import preview_table, schedule_view, schedules_view
from longshore.cli.view.show import View, print_answer, print_json, print_view, time
from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.client.jsonable import plain
from longshore.client.kind import Terms
from longshore.client.schedule_declaring import DeclaresSchedules
from longshore.client.schedule_document import ScheduleDocument, as_document, read_schedules
from longshore.client.schedule_json import (
    fire_json,
    preview_json,
    previewed,
    schedule_json,
    view_json,
)
from longshore.core.schedule_limits import MAX_SPECS
from longshore.errors import InvalidInput, NotFound
from longshore.model.schedule import Catchup, Fire, Overlap, Schedule, Synced

_PAGE: Final = 500
_name = click.argument("name")


@click.group(
    epilog=examples(
        "longshore schedules add nightly report pages=3 --cron '0 2 * * *'",
        "longshore schedules add --file schedules.yaml",
        "longshore schedules preview nightly 5",
        "longshore schedules pause nightly --note 'until the migration'",
        "longshore schedules ls --json",
    ),
    short_help="Submit jobs and groups at times of a calendar.",
)
def schedules() -> None:
    """Submit jobs and groups at times of a calendar, or every so often."""


@schedules.command()
@click.argument("name", required=False)
@click.argument("kind", required=False)
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE…]")
@click.option("--args", metavar="JSON", help="Arguments as a JSON object, @FILE, or - .")
@click.option("--cron", multiple=True, metavar="SPEC", help="Like '0 2 * * *'; repeatable.")
@click.option("--every", metavar="SECONDS", type=duration, help="Every so often, like 30s or 5m.")
@click.option("--tz", default="UTC", metavar="ZONE", help="Whose clocks --cron goes by (UTC).")
@click.option("--exclude", multiple=True, metavar="DAYS|SPEC", help="Not then; repeatable.")
@click.option("--start", "starts_at", type=moment, metavar="TIME", help="Not before this time.")
@click.option("--end", "ends_at", type=moment, metavar="TIME", help="Not after this time.")
@click.option("--jitter", type=duration, metavar="SECONDS", help="Up to so much later.")
@click.option("--overlap", type=click.Choice([one.value for one in Overlap]), help="(skip)")
@click.option("--catchup", type=click.Choice([one.value for one in Catchup]), help="(latest)")
@click.option("--window", type=duration, metavar="SECONDS", help="How late to catch up (1d).")
@click.option("--count", type=Whole(1, 1000), metavar="N", help="How many at most (100).")
@click.option("--grace", type=duration, metavar="SECONDS", help="When it counts as missed (60s).")
@click.option("--pause-after", type=Whole(0), metavar="N", help="Pause after so many failures.")
@click.option("--queue", metavar="NAME", help="The queue of its jobs.")
@click.option("--file", "file", metavar="FILE", help="Add all schedules of a YAML file, or of - .")
@click.option("--replace", is_flag=True, help="Change one that is there.")
@client_options
def add(context: click.Context, /, **given: Any) -> None:
    """Make a schedule of jobs of KIND, or all of a file.

    A cron expression has five fields: minute, hour, day of month, month, day of week. A sixth in
    front is seconds. Groups, and several zones, take a file.
    """
    documents = _documents(given)

    async def talk(connection: Connection) -> list[Schedule]:
        made = []
        for document in documents:
            kinds = {kind: await connection.kind(kind) for kind in document.kinds() if kind}
            terms = {kind: Terms.of_kind(info) for kind, info in kinds.items()}
            new = document.new(fresh_id, terms)
            made.append(await connection.schedules.put(new, replace=given["replace"]))
        return made

    made = ask(context, talk)
    if given["as_json"]:
        print_json([schedule_json(one) for one in made])
    else:
        for one in made:
            print_answer(False, None, f"schedule '{one.new.name}': {_next(one)}")


def _next(schedule: Schedule) -> str:
    times = previewed(schedule, schedule.state.decided_to, 1)
    return f"next at {times[0][1].isoformat(timespec='seconds')}" if times else "it has no times"


def _documents(given: dict[str, Any]) -> Sequence[ScheduleDocument]:
    if given["file"] is not None:
        if given["name"] or given["cron"] or given["every"]:
            raise InvalidInput("--file has all about its schedules; give nothing beside it")
        return list(read_schedules(file_name(given["file"]), file_bytes(given["file"])))
    if not given["name"] or not given["kind"]:
        raise click.UsageError("give the NAME of the schedule and the KIND of its jobs, or --file")
    if not given["cron"] and not given["every"]:
        raise click.UsageError(f"give --cron (up to {MAX_SPECS}) or --every")
    job = {"kind": given["kind"], "args": arguments_of(given["args"], given["pairs"])}
    if given["queue"]:
        job["queue"] = given["queue"]
    fields = {
        "name": given["name"],
        "cron": list(given["cron"]),
        "every_s": given["every"],
        "tz": given["tz"],
        "exclude": list(given["exclude"]),
        "starts_at": given["starts_at"],
        "ends_at": given["ends_at"],
        "jitter_s": given["jitter"],
        "overlap": given["overlap"],
        "catchup": given["catchup"],
        "window_s": given["window"],
        "count": given["count"],
        "grace_s": given["grace"],
        "pause_after": given["pause_after"],
        "job": job,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    return [as_document(told, "schedules add")]


@schedules.command()
@click.option("--app", metavar="NAME", help="Only what this app declares.")
@client_options
def ls(context: click.Context, /, app: str | None, **given: Any) -> None:
    """List schedules by name."""

    async def talk(connection: Connection) -> list[Schedule]:
        found: list[Schedule] = []
        while True:
            after = found[-1].new.name if found else ""
            page = await connection.schedules.list(after, _PAGE, app)
            found += page
            if len(page) < _PAGE:
                return found

    found = ask(context, talk)
    if given["as_json"]:
        print_json([schedule_json(one) for one in found])
    else:
        print_view(schedules_view(found))


@schedules.command()
@_name
@click.option("--most", type=Whole(1, 1000), default=20, help="How many fires to show (20).")
@client_options
def show(context: click.Context, /, name: str, most: int, **given: Any) -> None:
    """Show a schedule and what became of its last times."""
    view = ask(context, lambda connection: connection.schedules.show(name, most))
    if given["as_json"]:
        print_json(view_json(view))
    else:
        print_view(schedule_view(view))


@schedules.command()
@_name
@client_options
def why(context: click.Context, /, name: str, **given: Any) -> None:
    """Say what a schedule waits for, or why it does not fire."""
    view = ask(context, lambda connection: connection.schedules.show(name, 1))
    print_answer(given["as_json"], {"name": name, "why": view.text}, view.text)


@schedules.command()
@_name
@click.argument("count", type=Whole(1, 1000), default=10)
@client_options
def preview(context: click.Context, /, name: str, count: int, **given: Any) -> None:
    """Show the next times of a schedule, with their offsets."""
    view = ask(context, lambda connection: connection.schedules.show(name, 1))
    times = previewed(view.schedule, view.now, count)
    if given["as_json"]:
        print_json(preview_json(times))
    else:
        print_view(View([preview_table(times)] if times else [], "it has no more times"))


@schedules.command()
@_name
@click.option("--note", default="", metavar="TEXT", help="Why, for those who look at it.")
@client_options
def pause(context: click.Context, /, name: str, note: str, **given: Any) -> None:
    """Skip the times of a schedule from now on. What runs goes on."""
    made = ask(context, lambda connection: connection.schedules.pause(name, True, note))
    since = time(made.state.paused_at)
    print_answer(given["as_json"], schedule_json(made), f"paused '{name}' ({since})")


@schedules.command()
@_name
@client_options
def resume(context: click.Context, /, name: str, **given: Any) -> None:
    """Let a paused schedule go on."""
    made = ask(context, lambda connection: connection.schedules.pause(name, False))
    print_answer(given["as_json"], schedule_json(made), f"resumed '{name}': {_next(made)}")


@schedules.command()
@_name
@client_options
def trigger(context: click.Context, /, name: str, **given: Any) -> None:
    """Submit what a schedule submits now, whatever runs."""
    fire = ask(context, lambda connection: connection.schedules.trigger(name))
    what = "group" if fire.is_group else "job"
    print_answer(given["as_json"], fire_json(fire), f"submitted {what} {fire.subject}")


@schedules.command()
@_name
@click.option("--from", "first", type=moment, required=True, metavar="TIME", help="From then on.")
@click.option("--to", "last", type=moment, required=True, metavar="TIME", help="Up to then.")
@client_options
def backfill(
    context: click.Context, /, name: str, first: datetime, last: datetime, **given: Any
) -> None:
    """Submit what the times of a span did not submit.

    They go one after the other. Times before the schedule was made count too; at most 1,000 a call.
    """

    def talk(connection: Connection) -> Any:
        return connection.schedules.backfill(name, first, last)

    fires: tuple[Fire, ...] = ask(context, talk)
    words = f"{len(fires):,} times of '{name}' are queued"
    print_answer(given["as_json"], [fire_json(fire) for fire in fires], words)


@schedules.command()
@_name
@client_options
def rm(context: click.Context, /, name: str, **given: Any) -> None:
    """Remove a schedule. What it submitted stays."""
    if not ask(context, lambda connection: connection.schedules.remove(name)):
        raise NotFound(
            f"there is no schedule '{name}'; `longshore schedules ls` lists those there are"
        )
    print_answer(given["as_json"], {"name": name, "removed": True}, f"removed '{name}'")


@schedules.command()
@click.option("--app", "specs", multiple=True, required=True, metavar="MODULE:APP")
@client_options
def sync(context: click.Context, /, specs: tuple[str, ...], **given: Any) -> None:
    """Tell dispatchers what an app declares.

    Run it once for each deploy. It adds, changes and removes what the app declares, and touches
    nothing that was made by hand or by another app.
    """
    from longshore.executors.host.apps import load_app

    apps = [load_app(spec) for spec in specs]
    declaring = [app for app in apps if isinstance(app, DeclaresSchedules)]

    async def talk(connection: Connection) -> dict[str, Synced]:
        return {
            app.name: await connection.schedules.sync(app.name, app.schedules) for app in declaring
        }

    done = ask(context, talk)
    if given["as_json"]:
        print_json({name: plain(one) for name, one in done.items()})
        return
    for name, one in done.items():
        changes = (("added", one.added), ("changed", one.changed), ("removed", one.removed))
        words = [f"{what} {', '.join(names)}" for what, names in changes if names]
        print_answer(False, None, f"app '{name}': {'; '.join(words) or 'nothing to change'}")
