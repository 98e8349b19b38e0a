"""Sessions: what workers say and are told, in the full dialogue and in the plain one.

What a session is, and what its frames mean, is in `wire`; here it meets the store.
"""
