"""Read files that launch servers: shell, Python, YAML, systemd units."""
