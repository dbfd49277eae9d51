"""Nodes and jobs of Slurm: drained, put back into the queue, released and checked."""
