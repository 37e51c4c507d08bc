"""Models: what a request is, how each dialect writes and reads it, and the only network code."""
