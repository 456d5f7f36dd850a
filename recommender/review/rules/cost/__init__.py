"""Settings that waste memory or speed."""
