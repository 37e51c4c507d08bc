"""Sessions on disk: the log in SQLite, its drafts, and the lock that gives one process at a time the pen."""
