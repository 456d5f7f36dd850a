"""Choose one configuration and explain it."""
