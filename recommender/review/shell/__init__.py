"""Follow a shell script without running it."""
