"""Predict the memory and the speed of a configuration."""
