"""Make a checkpoint with random weights."""
