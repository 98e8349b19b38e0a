"""Pure decisions: values in, values out; no clock, no randomness, no I/O."""
