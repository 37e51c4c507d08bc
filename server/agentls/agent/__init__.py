"""Agents: one live session each, and the loop that does what its log says is owed."""
