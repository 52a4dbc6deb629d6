"""Optional dependencies: whether they are installed, and how to install them."""

import importlib.util


def install_hint(extra: str) -> str:
    """Returns the end of a message, with the command that installs an extra of pyproject.toml."""
    return f"install it with `pip install '.[{extra}]'` in the folder of the project"


def check_installed(extra: str, *packages: str) -> None:
    """Raises ValueError if a package of an extra is not installed; imports none of them."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} not installed: {install_hint(extra)}.")
