"""An app that declares a container, and nothing else."""

import longshore

app = longshore.App("lab")

greet = app.container(
    "greet",
    image="longshore/tools:1",
    command=["sh", "-c", 'printf \'"hello %s"\' "$1" > "$LONGSHORE_RESULT"', "-", "{name}"],
)
