"""The previous release and this one side by side: processes that are replaced under load, and the shapes of stored records."""
