"""Size a fleet for a rate of arrivals, and write the files that start it."""

FORMS = ("compose", "systemd", "k8s")
"""Formats of several files, which take a folder."""
