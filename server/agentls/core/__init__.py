"""The language of agentls and its pure machines: no I/O, no clock, no randomness below this package."""
