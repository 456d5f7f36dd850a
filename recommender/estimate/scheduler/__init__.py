"""Simulate the server: TurboMind's scheduler, the loop of its process and the prefix cache."""
