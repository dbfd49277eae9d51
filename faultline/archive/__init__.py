"""Months of signals, facts, incidents, runs, timeline, commands and controls as Parquet, by topic, day and cluster."""
