"""Compare two configurations on the same prompts."""
