"""The dispatcher: attends workers, moves jobs between the store and the wire."""
