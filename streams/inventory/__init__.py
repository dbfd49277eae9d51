"""What runs where: Kubernetes objects and a topology file in, facts about nodes, pods, jobs and links out."""
