"""Pages in other languages."""
