"""What runs commands and containers, inside a host process.

An attempt gets a folder, its inputs are brought there, a `runner` runs the program, its outputs are
taken, and `core.outcomes` says what the end means. Nothing here knows dispatchers or stores: files
come and go through the port `Files`.
"""
