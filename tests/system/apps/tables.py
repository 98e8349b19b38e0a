"""An app whose commands read files and make others."""

from __future__ import annotations

import longshore

app = longshore.App("tables")

upper = app.command(
    "upper",
    ["sh", "-c", 'mkdir out; tr a-z A-Z < in/words.txt > "out/$1.txt"', "-", "{name}"],
    inputs=[{"fileset": "words", "path": "in"}],
    outputs=[{"fileset": "upper", "patterns": ["*.txt"], "path": "out"}],
)
spoil = app.command(
    "spoil",
    ["sh", "-c", "echo spoilt > in/words.txt; ln -s /etc out"],
    inputs=[{"fileset": "words", "path": "in"}],
    outputs=[{"fileset": "spoilt", "path": "out"}],
)
nothing = app.command("nothing", ["true"], outputs=[{"fileset": "none", "patterns": ["*.csv"]}])
segfault = app.command(
    "segfault",
    ["sh", "-c", "echo half > part.txt; kill -SEGV $$"],
    outputs=[{"fileset": "rests", "patterns": ["part.txt"], "on": "failure"}],
)
partial = app.command(
    "partial",
    ["sh", "-c", "echo half > part.txt; exit 3"],
    outputs=[{"fileset": "parts", "patterns": ["part.txt"], "on": "always"}],
)
