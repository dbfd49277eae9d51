"""The notifier process: who is paged, told, and kept from alarms for what Faultline has closed."""
