"""The store on PostgreSQL: one file per duty, the SQL apart from what runs it."""
