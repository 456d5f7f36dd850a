"""What was asked, resolved to records."""
