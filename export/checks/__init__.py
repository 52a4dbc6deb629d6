"""The checks of an exported model."""
