"""Estimators for scikit-learn: classifiers, a regressor and embeddings, of texts.

    classifier = BertTextClassifier("hf://google-bert/bert-base-uncased", epochs=3)
    cross_val_score(classifier, texts, labels, scoring="f1_macro")

Needs the extra `sklearn`. TensorFlow is loaded by the first `fit`, after the input was checked.
"""

from bert_tf.system.extras import install_hint

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"bert_tf.sklearn needs scikit-learn; {install_hint('sklearn')}, or with "
        "`pip install scikit-learn`."
    ) from error

from bert_tf.sklearn.classifier import BertTextClassifier
from bert_tf.sklearn.embeddings import BertEmbeddings
from bert_tf.sklearn.regressor import BertTextRegressor

__all__ = ["BertEmbeddings", "BertTextClassifier", "BertTextRegressor"]
