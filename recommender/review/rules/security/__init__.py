"""What is open to others."""
