"""What jobs print and log: caught, cut to its quota, numbered."""
