"""The network in Keras 3 with TensorFlow as its backend: encoder, heads, losses.

Most of it is written in `keras.ops`. TensorFlow itself is imported where Keras lacks a function or
has a slower one: by `dropout.py` (masks from wrapping integers, traced once for all layers),
`layer_norm.py` (with an explicit gradient), `attention.py` (the joined projections for inference,
variables that are not weights of the model), `layout.py` (a gather without negative indices).

One alphabet of dimensions in every comment and docstring of this package; the other packages use
its letters for the same things, and N for the number of examples where there are no heads:

  B  batch                         D  hidden size
  T  sequence length, query side   F  intermediate size
  S  sequence length, key side     V  vocabulary
  N  attention heads               P  masked predictions per sequence
  H  size of one head              C  classes
  L  layers                        W  words
  R  packed rows                   U  tokens of a batch without its padding
"""
