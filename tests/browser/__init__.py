"""What a real browser does with a gateway."""
