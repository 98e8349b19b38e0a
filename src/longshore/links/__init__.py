"""How processes reach each other."""
