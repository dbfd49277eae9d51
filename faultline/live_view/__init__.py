"""What the topics hold now, in memory: for pages, tools and answers. Read only."""
