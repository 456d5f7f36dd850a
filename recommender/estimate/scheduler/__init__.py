"""Simulate the server: TurboMind's scheduler, the loop of its process and the prefix cache.

No kept library simulates TurboMind: Vidur simulates vLLM's scheduler, and SimPy goes through every event, where this
code passes over engine passes that are alike.
"""
