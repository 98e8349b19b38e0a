"""The command line: `commands/` says what each does, `view/` how it looks."""
