"""What can be set: settings by section, and policy as YAML tables."""
