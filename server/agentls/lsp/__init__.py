"""The server as clients meet it: LSP and the `agent/*` methods, on stdio and on a Unix socket."""
