"""Look up what is known of one thing."""
