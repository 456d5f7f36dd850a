"""Recommends and explains LMDeploy serving configurations."""

__version__ = "0.1.0"
