"""Installation hints for optional dependencies."""


def install_hint(extra: str) -> str:
    """Returns the end of a message, with the command that installs an extra of pyproject.toml."""
    return f"install it with `pip install '.[{extra}]'` in the folder of the project"
