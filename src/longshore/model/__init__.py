"""What exists, as frozen values."""
