"""HTTP: a process that answers what clients ask over HTTP, by asking dispatchers.

Towards dispatchers it is a client like any other. It keeps nothing that it could lose, and knows
no store: no SQL, no sockets of ZeroMQ and no decision about jobs may enter.
"""
