"""The commands, one file per family."""
