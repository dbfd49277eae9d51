"""The runbook language: YAML and CEL into strict values, with lint and diff."""
