"""A server killed before and after each of its commits, and what the next one makes of it."""
