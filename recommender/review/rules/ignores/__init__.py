"""Comments that silence rules."""
