"""Writes SavedModels: signatures, version folders, warm-up requests."""
