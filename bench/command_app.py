"""The command that is measured."""

import longshore

app = longshore.App("bench-commands")

noop_command = app.command("noop_command", ["/bin/true", "{data}"])
