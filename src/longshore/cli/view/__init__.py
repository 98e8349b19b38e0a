"""How the commands show things: tables, colours, live views, JSON."""
