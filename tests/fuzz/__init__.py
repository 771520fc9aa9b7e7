"""Bytes that mean no good, for everything that reads bytes of a pipe or a socket."""
