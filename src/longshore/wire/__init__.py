"""The dialogue between processes, pure: bytes in, messages out."""
