"""Model launch scripts: files, words, commands and launches."""
