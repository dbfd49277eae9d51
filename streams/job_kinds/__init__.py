"""The kinds of training jobs: a file each, which the inventory, the plans and the connectors read."""
