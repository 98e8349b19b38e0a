"""For testing Longshore, and what runs on it."""
