"""Looks inside arguments and results: values, schemas, users' types. Nothing here decides."""
