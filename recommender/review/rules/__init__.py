"""The rules, a module each."""
