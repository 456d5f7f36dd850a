"""From one GPU to a fleet: how many cards hold a rate of arrivals, and what starts them."""

FORMS = ("compose", "systemd", "k8s")
"""Formats of several files, which take a folder."""
