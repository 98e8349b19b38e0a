"""Sessions: the dispatcher's talk with its workers, in the full dialogue and in the plain one.

`wire` says what a session is and what its frames mean. Here that meets the store.
"""
