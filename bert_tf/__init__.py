"""bert_tf: BERT for TensorFlow, from raw text to a trained model.

After `import bert_tf` `keras.models.load_model` loads what was saved of its models.
"""

import os

from bert_tf.keras_classes import register_when_imported
from bert_tf.startup_lines import has_gpu

# Keras reads its backend once, when it is first imported; data, training and export are TensorFlow.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's start-up lines hide the program's own; errors are still shown, and warnings where
# there is a GPU: they say why it is not used.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1" if has_gpu() else "2")
register_when_imported()

__version__ = "0.1.0"
