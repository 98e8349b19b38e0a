"""The SDK: describe jobs, submit them, wait for them."""
