"""The layout that MSCCL runtimes can read: their parsers are hand-written and know little XML.

All three share one tokenizer: no declaration, no tabs, one space before an attribute, double
quotes. Files that any XML library accepts make them fail, or read something else. This module
judges raw text, one named rule a habit; it parses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

LONGEST_VALUE = 254  # buffers of 256 bytes, never checked while a value is read into them
MOST_ATTRIBUTES = 16  # further ones are read and dropped

_PIECE = re.compile(
    r"""(?P<comment><!--.*?(?:-->|\Z))
      | (?P<tag><[^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)*>)
      | (?P<text>[^<]+)
      | (?P<junk><)""",
    re.DOTALL | re.VERBOSE,
)
_NAME = r"[A-Za-z_][\w.-]{0,200}"
_TAG = re.compile(rf"<(?:/{_NAME}|{_NAME}(?: +{_NAME}=\"[^\"\t\r\n]*\")* *)/?>", re.ASCII)
_VALUE = re.compile(r'"([^"]*)"')
# Spaces count: each further one is read as an attribute with no name.
_ATTRIBUTE = re.compile(r'[^ "]+="[^"]*"| ')


@dataclass(frozen=True, slots=True)
class Piece:
    """A tag, a comment, the text between them, or a `<` that opens none of these."""

    kind: str
    line: int
    text: str


LexicalCheck = Callable[[list[Piece]], Iterator[tuple[int, str]]]


def pieces(text: str) -> list[Piece]:
    """The text cut into tags, comments and what stands between them; nothing is lost."""
    found: list[Piece] = []
    line = 1
    for match in _PIECE.finditer(text):
        found.append(Piece(match.lastgroup or "junk", line, match.group()))
        line += match.group().count("\n")
    return found


def _not_empty(found: list[Piece]) -> Iterator[tuple[int, str]]:
    if not any(piece.kind == "tag" for piece in found):
        yield 1, "no element at all; every parser crashes on that"


def _no_declaration(found: list[Piece]) -> Iterator[tuple[int, str]]:
    for piece in found:
        if piece.kind == "tag" and piece.text.startswith(("<?", "<!")):
            yield piece.line, f"{piece.text[:40]!r}; remove it, only elements and comments are read"


def _no_mark(found: list[Piece]) -> Iterator[tuple[int, str]]:
    if found and found[0].text.startswith("\ufeff"):
        yield 1, "a byte order mark; save the file without"


def _no_text(found: list[Piece]) -> Iterator[tuple[int, str]]:
    for piece in found:
        stray = piece.text.replace("\ufeff", "").strip()
        if piece.kind == "junk" or (piece.kind == "text" and stray):
            yield piece.line, f"{stray[:40]!r} between elements; remove it"


def _no_tabs(found: list[Piece]) -> Iterator[tuple[int, str]]:
    for piece in found:
        if piece.kind != "comment" and re.search(r"[^\S \r\n]", piece.text):
            yield piece.line, "a tab or other white space; only spaces and line ends are read"


def _tag_layout(found: list[Piece]) -> Iterator[tuple[int, str]]:
    advice = 'write <name key="value" ...> on one line, spaces only before keys, double quotes'
    for piece in found:
        if piece.kind == "tag" and piece.text[1] not in "?!" and not _TAG.fullmatch(piece.text):
            yield piece.line, f"{piece.text[:60]!r}; {advice}"


def _value_length(found: list[Piece]) -> Iterator[tuple[int, str]]:
    for piece in found:
        for value in _VALUE.findall(piece.text) if piece.kind == "tag" else ():
            if len(value.encode()) > LONGEST_VALUE:
                yield piece.line, f"a value of {len(value.encode())} bytes; {LONGEST_VALUE} fit, shorten it"


def _attribute_count(found: list[Piece]) -> Iterator[tuple[int, str]]:
    for piece in found:
        if piece.kind == "tag" and not piece.text.startswith("</"):
            # The space before each attribute is its separator, so only the others count.
            words = _ATTRIBUTE.findall(piece.text)
            count = max(sum(word != " " for word in words), sum(word == " " for word in words))
            if count > MOST_ATTRIBUTES:
                yield piece.line, f"{count} attributes (a doubled space is one); {MOST_ATTRIBUTES} are read"


def _no_references(found: list[Piece]) -> Iterator[tuple[int, str]]:
    for piece in found:
        if piece.kind == "tag" and "&" in piece.text:
            yield piece.line, "a reference such as &amp;; it would be read literally, use plain characters"


def _comment_start(found: list[Piece]) -> Iterator[tuple[int, str]]:
    for piece in found:
        if piece.kind == "comment":
            word = re.split(r"[ >/\r\n]", piece.text, maxsplit=1)[0]
            if "=" in word or len(word.encode()) > LONGEST_VALUE:
                yield piece.line, f"comment {word[:40]!r}; start it with a space, it is read as a tag name"


# name -> (meaning, check). Order is the order of reports.
LEXICAL_RULES: dict[str, tuple[str, LexicalCheck]] = {
    "file-not-empty": ("a file has an element", _not_empty),
    "no-declaration": ("no <?xml?> line, no DTD, no CDATA", _no_declaration),
    "no-byte-order-mark": ("the file starts with its first element", _no_mark),
    "no-text": ("nothing but white space and comments between elements", _no_text),
    "no-tabs": ("white space is spaces and line ends", _no_tabs),
    "tag-layout": ("one tag on one line, double quotes, no space around =", _tag_layout),
    "value-length": ("values fit the parsers' buffers", _value_length),
    "attribute-count": ("no attribute is dropped", _attribute_count),
    "no-references": ("no &amp; and the like", _no_references),
    "comment-start": ("a comment's first word has no = and is short", _comment_start),
}
