"""Puts configs/ into the package; everything else stands in pyproject.toml."""

import setuptools

setuptools.setup(
    packages=[*setuptools.find_packages(include=["bert_tf*", "export*"]), "bert_tf.configs"],
    package_dir={"bert_tf.configs": "configs"},
    package_data={
        "bert_tf": ["py.typed"],
        "bert_tf.configs": ["*.flags", "cluster/*"],
        "export": ["page/static/*", "serving/*"],
    },
)
