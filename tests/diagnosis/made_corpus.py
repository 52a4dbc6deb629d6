"""Clean documents for the doctor's tests."""


def sentence(number: int) -> str:
    """Returns a sentence of ten words that no other number gives."""
    digits = " ".join(str(number))
    return f"The mill number {digits} stood on the slow river in the rain."


def documents(count: int, lines: int = 6) -> list[list[str]]:
    """Returns documents of `lines` sentences, all different, of 66 words or more."""
    return [[sentence(100_000 + n * lines + i) for i in range(lines)] for n in range(count)]
