"""The network, in plain Keras 3: encoder, heads, losses.

One alphabet of dimensions, used in every comment and docstring of the project:

  B  batch                         D  hidden size
  T  sequence length, query side   F  intermediate size
  S  sequence length, key side     V  vocabulary
  N  attention heads               P  masked predictions per sequence
  H  size of one head              C  classes
  L  layers                        W  words
"""
