"""Exported models on disk: signatures, version folders, warm-up requests."""
