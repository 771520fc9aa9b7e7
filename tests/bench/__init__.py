"""The speed table: `python -m tests.bench`."""
