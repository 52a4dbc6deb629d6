"""Models as they are served: texts or pieces in, answers by name out."""
