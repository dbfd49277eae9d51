"""What a job's symptoms are explained by, and whose fault a hang is."""
