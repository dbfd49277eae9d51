"""Lint and tests of the data that ships: the catalog, the tables of correlation, scenarios; and of what a site lays over it."""
