"""The one SQLite file with every fact about every run."""
