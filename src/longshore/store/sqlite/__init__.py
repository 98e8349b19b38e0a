"""The store in one SQLite file: one file per duty, the SQL apart from what runs it."""
