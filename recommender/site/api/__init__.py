"""The site's JSON interface."""
