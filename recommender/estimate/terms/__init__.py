"""Times that only mixtures of experts or several GPUs add."""
