"""The compiled normalization rules of SentencePiece, as `tokenizers` applies them.

A charsmap is a double-array trie (Darts) of UTF-8 strings and their replacements:

    uint32 size of the trie in bytes | trie: uint32 units | replacements, each ended by NUL

`tokenizers` replaces grapheme clusters of fewer than 6 bytes as a whole: the shortest prefix with a
rule decides, and the rest of the cluster is lost. Larger clusters are replaced character by
character.
"""

import functools
import unicodedata

import numpy as np

from bert_tf.text.byte_level import read_ranges
from bert_tf.text.unicode_tables import assigned_code_points

MAX_CLUSTER_BYTES = 5
# Bounds for corrupt and hostile files. The rules of NFKC have 45,000 units, keys of up to 18 bytes,
# replacements of up to 33, and 11,000 strings of at most `MAX_CLUSTER_BYTES` in the trie.
_MAX_KEY_BYTES = 64
_MAX_REPLACEMENT_BYTES = 1024
_MAX_BYTES = 8 << 20
_MAX_NODES = 1 << 18
_MAX_PATHS = 200_000
_NODES_AT_ONCE = 4096  # Each takes 255 positions of 8 bytes.
# Characters that continue a grapheme cluster, in the Unicode version of `tokenizers` 0.23.
_CONTINUING = """
    300-36f 483-489 591-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-65f 670 6d6-6dc 6df-6e4
    6e7-6e8 6ea-6ed 711 730-74a 7a6-7b0 7eb-7f3 7fd 816-819 81b-823 825-827 829-82d 859-85b
    897-89f 8ca-8e1 8e3-903 93a-93c 93e-94f 951-957 962-963 981-983 9bc 9be-9c4 9c7-9c8
    9cb-9cd 9d7 9e2-9e3 9fe a01-a03 a3c a3e-a42 a47-a48 a4b-a4d a51 a70-a71 a75 a81-a83 abc
    abe-ac5 ac7-ac9 acb-acd ae2-ae3 afa-aff b01-b03 b3c b3e-b44 b47-b48 b4b-b4d b55-b57
    b62-b63 b82 bbe-bc2 bc6-bc8 bca-bcd bd7 c00-c04 c3c c3e-c44 c46-c48 c4a-c4d c55-c56
    c62-c63 c81-c83 cbc cbe-cc4 cc6-cc8 cca-ccd cd5-cd6 ce2-ce3 cf3 d00-d03 d3b-d3c d3e-d44
    d46-d48 d4a-d4d d57 d62-d63 d81-d83 dca dcf-dd4 dd6 dd8-ddf df2-df3 e31 e33-e3a e47-e4e
    eb1 eb3-ebc ec8-ece f18-f19 f35 f37 f39 f3e-f3f f71-f84 f86-f87 f8d-f97 f99-fbc fc6
    102d-1037 1039-103e 1056-1059 105e-1060 1071-1074 1082 1084-1086 108d 109d 135d-135f
    1712-1715 1732-1734 1752-1753 1772-1773 17b4-17d3 17dd 180b-180d 180f 1885-1886 18a9
    1920-192b 1930-193b 1a17-1a1b 1a55-1a5e 1a60 1a62 1a65-1a7c 1a7f 1ab0-1add 1ae0-1aeb
    1b00-1b04 1b34-1b44 1b6b-1b73 1b80-1b82 1ba1-1bad 1be6-1bf3 1c24-1c37 1cd0-1cd2 1cd4-1ce8
    1ced 1cf4 1cf7-1cf9 1dc0-1dff 200c-200d 20d0-20f0 2cef-2cf1 2d7f 2de0-2dff 302a-302f
    3099-309a a66f-a672 a674-a67d a69e-a69f a6f0-a6f1 a802 a806 a80b a823-a827 a82c a880-a881
    a8b4-a8c5 a8e0-a8f1 a8ff a926-a92d a947-a953 a980-a983 a9b3-a9c0 a9e5 aa29-aa36 aa43
    aa4c-aa4d aa7c aab0 aab2-aab4 aab7-aab8 aabe-aabf aac1 aaeb-aaef aaf5-aaf6 abe3-abea
    abec-abed fb1e fe00-fe0f fe20-fe2f ff9e-ff9f 101fd 102e0 10376-1037a 10a01-10a03
    10a05-10a06 10a0c-10a0f 10a38-10a3a 10a3f 10ae5-10ae6 10d24-10d27 10d69-10d6d 10eab-10eac
    10efa-10eff 10f46-10f50 10f82-10f85 11000-11002 11038-11046 11070 11073-11074 1107f-11082
    110b0-110ba 110c2 11100-11102 11127-11134 11145-11146 11173 11180-11182 111b3-111c0
    111c9-111cc 111ce-111cf 1122c-11237 1123e 11241 112df-112ea 11300-11303 1133b-1133c
    1133e-11344 11347-11348 1134b-1134d 11357 11362-11363 11366-1136c 11370-11374 113b8-113c0
    113c2 113c5 113c7-113ca 113cc-113d0 113d2 113e1-113e2 11435-11446 1145e 114b0-114c3
    115af-115b5 115b8-115c0 115dc-115dd 11630-11640 116ab-116b7 1171d-1171f 11722-1172b
    1182c-1183a 11930-11935 11937-11938 1193b-1193e 11940 11942-11943 119d1-119d7 119da-119e0
    119e4 11a01-11a0a 11a33-11a39 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 11b60-11b67
    11c2f-11c36 11c38-11c3f 11c92-11ca7 11ca9-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45
    11d47 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 11f00-11f01 11f03 11f34-11f3a
    11f3e-11f42 11f5a 13440 13447-13455 1611e-1612f 16af0-16af4 16b30-16b36 16f4f 16f51-16f87
    16f8f-16f92 16fe4 16ff0-16ff1 1bc9d-1bc9e 1cf00-1cf2d 1cf30-1cf46 1d165-1d169 1d16d-1d172
    1d17b-1d182 1d185-1d18b 1d1aa-1d1ad 1d242-1d244 1da00-1da36 1da3b-1da6c 1da75 1da84
    1da9b-1da9f 1daa1-1daaf 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a 1e08f
    1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5
    1e8d0-1e8d6 1e944-1e94a 1f3fb-1f3ff e0020-e007f e0100-e01ef
"""
# Characters that the next character continues.
_PREPENDED = """
    600-605 6dd 70f 890-891 8e2 d4e 110bd 110cd 111c2-111c3 1193f 11941 11a3a 11a84-11a89 11d46
    11f02
"""


@functools.cache
def read_rules(charsmap: bytes) -> dict[str, str]:
    """Returns the replacement of each string of at most `MAX_CLUSTER_BYTES` that has one.

    Longer strings also have rules, but `tokenizers` never applies them.

    Raises:
      ValueError: if the charsmap is corrupt.
    """
    check_charsmap(charsmap)
    rules: dict[str, str] = {}
    if not charsmap:
        return rules
    units, replacements = _parts(charsmap)
    keys = [b""]
    bases = _child_bases(np.zeros(1, np.int64), units)
    for _ in range(MAX_CLUSTER_BYTES):
        parents, labels, positions = _children(bases, units)
        bases = _child_bases(positions, units)
        keys = [keys[p] + bytes([label]) for p, label in zip(parents, labels, strict=True)]
        for index in np.nonzero(_has_rule(positions, units))[0]:
            start = int(units[bases[index]] & 0x7FFFFFFF)
            end = replacements.index(b"\0", start)
            rules[_decode(keys[index])] = _decode(replacements[start:end])
    return rules


def check_charsmap(charsmap: bytes) -> None:
    """Raises ValueError if a charsmap is corrupt or too large: `tokenizers` fails with some texts.

    Nodes share their children, so a small trie may have countless paths, each of which is a string
    for `read_rules`. They are counted node by node.
    """
    if not charsmap:
        return
    units, replacements = _parts(charsmap)
    ends = np.flatnonzero(np.frombuffer(replacements, np.uint8) == 0)
    bases = _child_bases(np.zeros(1, np.int64), units)
    num_paths: np.ndarray = np.ones(1)  # [nodes], float64: it may exceed 64 bits.
    num_nodes = 0
    for depth in range(_MAX_KEY_BYTES):
        num_nodes += len(bases)
        if not len(bases):
            return
        if depth <= MAX_CLUSTER_BYTES and num_paths.sum() > _MAX_PATHS:
            raise ValueError(
                f"the trie of a charsmap has {num_paths.sum():.3g} strings of {depth} bytes; "
                f"expected at most {_MAX_PATHS}."
            )
        # A child is at base ^ label, and so at most at base | 255.
        if num_nodes > _MAX_NODES or (bases | 255).max() >= len(units):
            break
        parents, _, positions = _children(bases, units)
        children = _child_bases(positions, units)
        leaves = children[_has_rule(positions, units)]
        if len(leaves) and (leaves.max() >= len(units)):
            break
        _check_replacements(units[leaves] & 0x7FFFFFFF, ends)
        bases, indices = np.unique(children, return_inverse=True)
        num_paths = np.bincount(indices, num_paths[parents], len(bases))
    raise ValueError(
        "the trie of a charsmap is corrupt: a node leads out of it, or it is too deep or too large."
    )


def _check_replacements(starts: np.ndarray, ends: np.ndarray) -> None:
    """Raises ValueError for replacements that do not end, or end too late; `ends` is ascending."""
    indices = np.searchsorted(ends, starts)
    if not (indices < len(ends)).all():
        raise ValueError("a rule of a charsmap has no replacement.")
    if (ends[indices] - starts > _MAX_REPLACEMENT_BYTES).any():
        raise ValueError(
            f"a replacement of a charsmap has more than {_MAX_REPLACEMENT_BYTES} bytes."
        )


def _parts(charsmap: bytes) -> tuple[np.ndarray, bytes]:
    """Returns the units of the trie, int64 [U], and the replacements."""
    size = int.from_bytes(charsmap[:4], "little")
    if len(charsmap) < 4 or size % 4 or not 0 < size <= len(charsmap) - 4:
        raise ValueError(f"a charsmap of {len(charsmap)} bytes says that its trie has {size}.")
    if len(charsmap) > _MAX_BYTES:
        raise ValueError(f"a charsmap has {len(charsmap)} bytes; expected at most {_MAX_BYTES}.")
    return np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64), charsmap[4 + size :]


def _children(bases: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the parent, the label and the position of each child of the nodes."""
    all_labels = np.arange(1, 256)
    parents = []
    labels = []
    positions = []
    for first in range(0, max(len(bases), 1), _NODES_AT_ONCE):
        candidates = bases[first : first + _NODES_AT_ONCE, np.newaxis] ^ all_labels  # [nodes, 255]
        # A unit has the label of its edge in its lowest 8 bits; the highest bit marks values.
        rows, columns = np.nonzero((units[candidates] & 0x800000FF) == all_labels)
        parents.append(rows + first)
        labels.append(all_labels[columns])
        positions.append(candidates[rows, columns])
    return np.concatenate(parents), np.concatenate(labels), np.concatenate(positions)


def _has_rule(positions: np.ndarray, units: np.ndarray) -> np.ndarray:
    # Bit 8 of a unit says whether a key ends at the node (darts.h, has_leaf).
    return (units[positions] >> 8 & 1).astype(bool)


def _child_bases(positions: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Returns the position to which the label of a child is added, for each node."""
    # darts.h, offset: 22 bits, shifted by 8 more if bit 9 is set.
    found = units[positions]
    return positions ^ ((found >> 10) << ((found & 0x200) >> 6))


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"a charsmap has the rule {value!r}, which is not UTF-8.") from None


def continuing_characters() -> list[int]:
    """Returns the code points that belong to the grapheme cluster of the character before them."""
    return _code_points(_CONTINUING)


def prepended_characters() -> list[int]:
    """Returns the code points whose grapheme cluster includes the next character."""
    return _code_points(_PREPENDED)


def control_characters() -> list[int]:
    """Returns the code points that are a grapheme cluster on their own."""
    kept = {0x200C, 0x200D, *continuing_characters(), *prepended_characters()}
    codes = []
    for code in assigned_code_points():
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp") and code not in kept:
            codes.append(code)
    return codes


def _code_points(ranges: str) -> list[int]:
    codes: list[int] = []
    for first, last in read_ranges(ranges):
        codes.extend(range(first, last + 1))
    return codes
