"""Real processes, really broken: `longshore chaos` (docs/chaos.md, decision 0050).

Here live the plan of faults, the fleet that suffers them, the work that runs meanwhile, the history
of all of it, and the checker that judges the history by the promises G1 to G8. `plan`, `checker`
and the rules are pure. Nothing outside of this room and its command imports it.
"""
