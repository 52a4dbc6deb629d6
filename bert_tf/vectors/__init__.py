"""Exact search for the nearest of many vectors, and vectors of fewer bytes."""
