"""Long-running processes: composed of their parts, supervised, reloaded, announced as ready.

`compose` is the composition root. No command and no view lives here: those are in `cli`.
"""
