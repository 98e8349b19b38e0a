"""What processes say to each other. Pure: bytes in, messages out."""
