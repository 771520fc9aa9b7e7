"""The server: the one owner of a state file while it lives."""
