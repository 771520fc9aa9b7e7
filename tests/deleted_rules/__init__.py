"""Rules taken out of the package, one at a time: the test that a table names for it has to notice."""
