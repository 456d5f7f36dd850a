"""Facts as types, and how they are loaded."""
