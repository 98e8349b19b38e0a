"""Where jobs are remembered: one port, several databases."""
