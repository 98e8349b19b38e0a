"""A whole cluster in one thread, on virtual time, with everything that can go wrong going wrong.

Dispatchers, workers and clients run unchanged; only what they stand on is simulated: the event loop
(`loop`), the network (`network`), the way to the store (`database`) and the jobs' bodies
(`bodies`). A `scenario` is made from a seed, `cluster` acts it out, `promises` watches every commit
and every start and stop of an attempt, and `trace` remembers, so that a broken promise comes with
the story of its job.
"""
