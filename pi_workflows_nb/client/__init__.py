"""The `client.v1` protocol: what a second kernel, a command line and a process server's own kernel use."""
