"""Gathers a corpus of English technical prose from the installed packages.

The texts come from source files, which are not imported: the language reference in Python's
standard library (`pydoc_data.topics`), and the docstrings and longer comments of the standard
library and of the installed packages of requirements.txt. Code, signatures, tables and markup are
removed; duplicate sentences are dropped. A document is the text of a class with its methods, or of
neighbouring functions of a module.

Texts are found by a pattern and not with `ast`, because some documentation is passed to a function,
as in NumPy for its C code.
"""

import ast
import importlib.util
import inspect
import pathlib
import re
import sysconfig
from collections.abc import Iterator

from absl import logging

from bert_tf.corpus.sentences import split_sentences
from bert_tf.system.files import atomic_write

PACKAGES = (
    "numpy keras keras_hub tensorflow tensorflow_text tensorflow_datasets matplotlib mpl_toolkits "
    "tensorboard absl h5py google.protobuf grpc PIL pip setuptools pkg_resources rich pygments "
    "markdown werkzeug requests urllib3 packaging pyparsing dateutil yaml etils fontTools"
).split()
MIN_SENTENCES = 6  # Shorter documents are merged.
_SKIPPED_FOLDERS = frozenset(
    "test tests testing idle_test site-packages dist-packages __pycache__ _api include turtledemo "
    "lib2to3 encodings v1 compat".split()
)

# A text of a source file, or the head of a top-level class, which begins a group.
_TEXT = re.compile(
    r'^(?:_?DESCRIPTION = |[ \t]*)[rRuU]?("""|\'\'\')(?P<doc>.*?)\1'
    r"|(?P<comment>(?:^[ \t]*#[^\n]*\n){3,})"
    r"|^(?P<head>class)\b",
    re.MULTILINE | re.DOTALL,
)


def gather_builtin_corpus(path: str | pathlib.Path) -> pathlib.Path:
    """Writes the corpus, one sentence per line with a blank line after each document.

    The same packages give the same file. The packages of requirements.txt take 15 seconds on one
    core and give 9 MB, 116,000 sentences, 5,400 documents.

    Raises:
      ValueError: if no source file is found.
    """
    path = pathlib.Path(path)
    seen: set[str] = set()
    documents = sentences = size = 0
    with atomic_write(path) as file:
        for texts in _grouped_texts():
            for document in _documents(texts, seen):
                text = "\n".join(document) + "\n\n"
                file.write(text)
                documents += 1
                sentences += len(document)
                size += len(text)
        if not documents:
            raise ValueError(
                "No sources of Python's library or the installed packages were found (perhaps only "
                "compiled files); give a corpus with input_file."
            )
    logging.info("%s: %d documents, %d sentences, %d bytes", path, documents, sentences, size)
    return path


# Finding ----------------------------------------------------------------------------------------


def _grouped_texts() -> Iterator[list[list[str]]]:
    """Yields for each source file the texts of its classes and runs of functions."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    topics = library / "pydoc_data" / "topics.py"
    if topics.exists():
        # The module is one dict literal, from topic to text.
        tree = ast.parse(topics.read_text(encoding="utf8"))
        value = next(node.value for node in tree.body if isinstance(node, ast.Assign))
        yield [[text] for _, text in sorted(ast.literal_eval(value).items())]
    roots = [library, *map(_package_folder, PACKAGES)]
    for root in filter(None, roots):
        for file in sorted(root.rglob("*.py")):
            folders = file.relative_to(root).parts[:-1]
            if _SKIPPED_FOLDERS.isdisjoint(folders) and not file.name.endswith("_test.py"):
                yield _file_texts(file.read_text(encoding="utf8", errors="replace"))


def _package_folder(name: str) -> pathlib.Path | None:
    """Returns the folder of a package without importing it; None if it is not installed."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        return None
    return pathlib.Path(spec.submodule_search_locations[0], *rest)


def _file_texts(source: str) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for match in _TEXT.finditer(source):
        if match["head"]:
            groups.append([])
        elif match["doc"]:
            groups[-1].append(inspect.cleandoc(match["doc"]))
        elif match["comment"]:
            groups[-1].append(re.sub(r"(?m)^[ \t]*#+[ \t]?", "", match["comment"]))
    return groups


# Cleaning ---------------------------------------------------------------------------------------

_LITERAL_BLOCK = re.compile(  # a line ending in `::`, or a directive, and the deeper lines below
    r"^([ \t]*)(?:[^\n]*::|\.\. [\w-]+::[^\n]*)\n"
    r"(?:[ \t]*\n)*(?:\1[ \t]+\S[^\n]*(?:\n|$)(?:[ \t]*\n)*)+",
    re.MULTILINE,
)
_CODE = re.compile(
    r"^[ \t]*(```|~~~).*?^[ \t]*\1[^\n]*$"  # fenced
    r"|^[ \t]*(?:>>>|\.\.\. |In \[\d+\]:|\$ )(?:[^\n]+(?:\n|$))+"  # sessions, with their output
    r"|^[ \t]*(?:@\w+ |:\w[\w ]*:(?!`)|\.\. )[^\n]*$"  # fields and directives
    r"|^[ \t]*[-=~^#*+|`\"_. ]{3,}$"  # rules, underlines
    r"|^[ \t]*(?:\*?\w+, )*\*{0,2}\w+ : [^\n]*$"  # NumPy's `name : type`
    r"|^[ \t]*\|[^\n]*$",  # tables
    re.MULTILINE | re.DOTALL,
)
_ITEM = re.compile(  # opens a paragraph; dropped: a bullet, or `name (type):` of an argument list
    r"[-*+•][ \t]+|\(?\d{1,2}[.)][ \t]+"
    r"|`{0,2}\*{0,2}[\w.]+`{0,2}(?: ?\([^()]*\))?(?: --|:)(?:[ \t]+|$)"
)
_MARKUP = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r":[a-z:]+:`(?:~(?:[^`]*\.)?|!)?([^`<]+?)(?:\s*<[^>`]*>)?`", r"\1"),  # :role:`~a.b <c>`
        (r"`([^`<]+?)\s*<[^>`]*>`_{0,2}", r"\1"),  # `text <link>`_
        (r"\[([^\]\[]+)\]\((?:https?:|/|\.|#)[^)\s]*\)", r"\1"),  # [text](link)
        (r"``?([^`]*)``?_{0,2}", r"\1"),
        (r"\*\*([^*\s][^*]*?)\*\*|(?<![\w*])\*([^*\s][^*]*?)\*(?!\w)", r"\1\2"),
        (r"\s*\[(?:\d+|[A-Z]\w+)\]_?(?=[\s.,;)]|$)", ""),  # [1]_
        (r"\s+", " "),
    )
)
_WORD = re.compile(
    r"[(\"'“‘]*[A-Za-z]+(?:['’-][A-Za-z]+)*[)\"'”’.,;:!?]*$|[(]?\d+(?:\.\d+)?[.,;:)]*$"
)
_FUNCTION_WORDS = frozenset(
    "a an and are as at be been but by can do does each for from has have if in into is it its may "
    "must no not of on only or should so than that the then there these they this to was we when "
    "where which while will with you your".split()
)
_NOT_PROSE = re.compile(
    r"https?:|www\.|[{}\\$=<>|^~@`]|__|:\w+:|\(c\)|[Cc]opyright|[Ll]icen[cs]e|TODO|noqa|pylint"
)


def _documents(groups: list[list[str]], seen: set[str]) -> Iterator[list[str]]:
    """Yields the documents of one file; a short group joins the next, and the last the previous."""
    document: list[str] = []
    # The latest document is held back, so that a short rest of the file can join it.
    complete: list[str] = []
    for texts in groups:
        for text in texts:
            document.extend(_new_sentences(text, seen))
        if len(document) >= MIN_SENTENCES:
            if complete:
                yield complete
            complete = document
            document = []
    complete += document
    if len(complete) >= MIN_SENTENCES:
        yield complete


def _new_sentences(text: str, seen: set[str]) -> Iterator[str]:
    """Yields the sentences of a docstring that read like prose and are not in `seen` yet."""
    for paragraph in _paragraphs(text):
        for sentence in split_sentences(paragraph):
            # Sentences that differ in numbers, case or punctuation only count as the same.
            key = re.sub(r"[\W\d_]+", "", sentence).lower()
            if key not in seen and is_prose(sentence):
                seen.add(key)
                yield sentence


def _paragraphs(text: str) -> Iterator[str]:
    """Yields the paragraphs and list items of a docstring, each as a line without markup."""
    text = _CODE.sub("\n", _LITERAL_BLOCK.sub(_announcement, text.expandtabs()))
    paragraph: list[str] = []
    # The additional blank line ends the last paragraph.
    for line in [*text.split("\n"), ""]:
        stripped = line.strip()
        item = _ITEM.match(stripped)
        if not stripped or item:
            if paragraph:
                joined = " ".join(paragraph)
                for pattern, replacement in _MARKUP:
                    joined = pattern.sub(replacement, joined)
                yield joined
            paragraph = []
        if stripped:
            paragraph.append(stripped[item.end() :] if item else stripped)


def _announcement(match: re.Match) -> str:
    """Returns the line that introduces a literal block, or the body of a note."""
    head = match[0].split("\n", 1)[0]
    if re.match(r"[ \t]*\.\. (?:note|warning|tip|important|seealso|deprecated|version\w+)::", head):
        return match[0].replace("::", ":: \n", 1).split("\n", 1)[1]
    if head.lstrip().startswith(".. "):
        return ""
    return head.replace("::", ":") + "\n\n"


def is_prose(sentence: str) -> bool:
    """Returns whether a text is an English sentence, and not a title, code, table or fragment."""
    words = sentence.split()
    if not 4 <= len(words) <= 80 or len(sentence) > 500 or _NOT_PROSE.search(sentence):
        return False
    if not (sentence[0].isupper() or sentence[0] in "\"'(“") or sentence[-1] not in '.!?:)"':
        return False
    plain = sum(bool(_WORD.match(word)) for word in words)
    function_words = sum(word.lower() in _FUNCTION_WORDS for word in words)
    return plain >= 0.75 * len(words) and function_words >= max(1, 0.15 * len(words))
