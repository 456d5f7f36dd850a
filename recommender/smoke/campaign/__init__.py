"""Run many smoke runs from a plan."""
