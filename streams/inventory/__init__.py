"""What runs where: Kubernetes objects and a cabling file in, facts about nodes, pods, jobs and links out."""
