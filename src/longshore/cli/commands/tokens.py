"""`longshore token` and `longshore audit`: who may ask over HTTP, and who asked for what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from longshore.cli.options import Whole, ask, client_options, duration, examples, moment
from longshore.cli.view.access import audit_table, token_words, tokens_table
from longshore.cli.view.show import View, print_answer, print_json, print_view
from longshore.client.access_json import audited_json, token_json
from longshore.client.ids import fresh_id
from longshore.client.tokens import new_token
from longshore.model.access import AuditFilter, Role, Scope
from longshore.run.ready import note


@click.command(
    name="token",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore token create --role submit --queue mail --expires 30d",
        "longshore token create --name dashboard --role read --hide-payloads",
        "longshore token create --name ops --role admin > ops.token",
        "longshore token list",
        "longshore token revoke dashboard",
    ),
)
@click.argument(
    "action", type=click.Choice(["create", "list", "revoke"]), metavar="create|list|revoke"
)
@click.argument("revoked", required=False, metavar="[NAME|ID]")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    help="What its holder may do: read, submit (and read), worker, or admin: all.",
)
@click.option("--name", metavar="NAME", help="What it is called in lists and in the audit.")
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Only this; repeatable.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this; repeatable.")
@click.option("--hide-payloads", is_flag=True, help="Show no arguments, results, logs and states.")
@click.option(
    "--expires",
    metavar="TIME",
    callback=lambda context, option, text: None if text is None else duration(text, 1.0),
    help="For how long it is good, like 12h or 30d (for ever).",
)
@client_options
def token(context: click.Context, /, action: str, revoked: str | None, **given: Any) -> None:
    """Make, list or revoke tokens, which clients over HTTP show.

    `create` prints the new token once, on standard output. Put it where the client has its secrets,
    for instance into LONGSHORE_TOKEN: nobody can show it again. `list` shows the first characters
    of each. `revoke` makes one worthless; every dispatcher knows it within about a second.

    Exits with 3 if there is no such token.
    """
    if action != "create" and (given["role"] or given["name"]):
        raise click.UsageError("--role and --name are for a new token", context)
    if (action == "revoke") != (revoked is not None):
        raise click.UsageError("`revoke` takes the name of a token, the others take none", context)
    if action == "create":
        _create(context, given)
    elif revoked is not None:
        _revoke(context, revoked)
    else:
        _list(context)


def _create(context: click.Context, given: dict[str, Any]) -> None:
    if given["role"] is None:
        raise click.UsageError("a new token needs a --role: read, submit, worker or admin", context)
    scope = Scope(given["queues"], given["kinds"], not given["hide_payloads"])
    id = fresh_id()
    name = given["name"] or f"{given['role']}-{id.hex[-6:]}"
    secret, new = new_token(id, name, Role(given["role"]), scope, given["expires"])
    made = ask(context, lambda connection: connection.create_token(new))
    if not given["as_json"]:
        note(token_words(made))
    print_answer(given["as_json"], {**token_json(made), "token": secret}, secret)


def _list(context: click.Context) -> None:
    found = ask(context, lambda connection: connection.tokens())
    if context.params["as_json"]:
        print_json([token_json(one) for one in found])
    else:
        table = tokens_table(found, datetime.now(UTC))
        print_view(View([table], "no tokens: `longshore token create` makes one"))


def _revoke(context: click.Context, name: str) -> None:
    revoked = ask(context, lambda connection: connection.revoke_token(name))
    words = f"token {revoked.name} is revoked"
    print_answer(context.params["as_json"], token_json(revoked), words)


@click.command(
    name="audit",
    epilog=examples(
        "longshore audit",
        "longshore audit --by token:dashboard --since 2026-01-31T12:00:00Z",
        "longshore audit --action cancel --subject 4711 --json",
    ),
)
@click.option("--by", metavar="WHO", help="Only of this: token:NAME, key:NAME or local.")
@click.option("--action", metavar="ACTION", help="Only this, like cancel or pause_queue.")
@click.option("--subject", metavar="TEXT", help="Only about what has this in its name.")
@click.option("--since", metavar="TIME", help="Only since then: a time with its zone, or 2h.")
@click.option(
    "--limit", type=Whole(1, 10_000), metavar="N", default=50, help="The most entries (50)."
)
@client_options
def audit(context: click.Context, /, **given: Any) -> None:
    """List who asked for which changes, newest first.

    Each entry was written in the transaction of the change. Jobs have no entries when they are
    submitted: `longshore show JOB` says by whom.
    """
    wanted = AuditFilter(
        given["by"], given["action"], given["subject"], _since(given["since"]), None, given["limit"]
    )
    found = ask(context, lambda connection: connection.audit(wanted))
    if given["as_json"]:
        print_json([audited_json(one) for one in found])
    else:
        print_view(View([audit_table(found)], "no entries"))


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    if text[:1].isdigit() and text[-1:] in "smhd" and ":" not in text:
        return datetime.now(UTC) - timedelta(seconds=duration(text))
    return moment(text)
