"""The worker: attends a dispatcher, runs jobs, reports."""
