"""Entities by their definition, slow and plain: what the metrics and programs are held against."""

import itertools

Tags = list[str]


def entities(row: Tags) -> set[tuple[str, int, int]]:
    """Returns (type, start, end) of each entity of a row, as conlleval's rules have them.

    An entity is a stretch of one type in which B- stands at the start alone, and that neither its
    neighbour before it nor the one behind it goes on.
    """
    found = set()
    for start, end in itertools.combinations(range(len(row) + 1), 2):
        kind = row[start][2:]
        is_one = row[start] != "O" and all(tag == f"I-{kind}" for tag in row[start + 1 : end])
        goes_on = start > 0 and row[start] == f"I-{kind}" and row[start - 1][1:] == f"-{kind}"
        if is_one and not goes_on and row[end : end + 1] != [f"I-{kind}"]:
            found.add((kind, start, end))
    return found


def scores(true: list[Tags], predicted: list[Tags], kind: str = "") -> dict[str, float]:
    """Returns precision, recall and F1 in percent and `support`, of one type or of all.

    Example: true "B-A O", predicted "B-A B-A" give 50, 100 and 66.7.
    """

    def all_of(rows: list[Tags]) -> set[tuple]:
        found = [(number, *e) for number, row in enumerate(rows) for e in entities(row)]
        return {entity for entity in found if kind in ("", entity[1])}

    real, said = all_of(true), all_of(predicted)
    right = len(real & said)
    precision, recall = (100 * right / max(1, len(some)) for some in (said, real))
    f1 = 200 * right / max(1, len(said) + len(real))
    return {"precision": precision, "recall": recall, "f1": f1, "support": len(real)}
