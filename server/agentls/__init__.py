"""An agent language server: hosts AI coding agents and lets every editor talk to them over LSP."""

__version__ = "0.1.0"
