"""The terminal: command line and terminal viewer."""
