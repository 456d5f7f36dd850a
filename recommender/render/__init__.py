"""Write a recommendation as text."""
