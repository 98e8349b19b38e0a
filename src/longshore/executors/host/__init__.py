"""What runs inside the process of a job: it imports the app, the agent never does."""
