"""Models in the form in which they are served: texts or ids in, answers by name out."""
