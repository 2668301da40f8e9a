"""Reads MSCCL XML files, also those of msccl-tools and of strangers, into `Program` objects.

The input is not trusted: its size, nesting and number of elements are bounded, there are no
entities and no DTD, and whatever is wrong becomes a `FormatError` naming file, line, element and
attribute. The reader is laxer than the runtimes on layout (`lexical.py` judges that) and on the
attributes that only some of them need (`rules.py` judges those).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from ...schedules.errors import FormatError, MissingError
from .program import Buffer, OpCode, Program, RankProgram, Step, ThreadBlock
from .schema import ALGO, Node, all_faults, to_int

MAX_INPUT_BYTES = 64 * 2**20
MAX_ELEMENTS = 500_000  # 4096 nodes a rank is what a runtime reads: 122 full ranks
MAX_DEPTH = 16
MAX_ATTRIBUTES = 64


@dataclass(frozen=True, slots=True)
class Document:
    """A file that is well-formed XML with an `<algo>` at the top: its raw text and its elements."""

    source: str
    text: str
    algo: Node


class _TreeBuilder:
    """Collects elements from expat's calls, within the bounds above."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.expat: Any = None
        self.root: Node | None = None
        self._open: list[Node] = []
        self._count = 0

    @property
    def line(self) -> int:
        return int(self.expat.CurrentLineNumber)

    def fail(self, message: str) -> FormatError:
        return FormatError(f"{self.source}: line {self.line}: {message}")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise self.fail(f"more than {MAX_ELEMENTS} elements; split the file")
        if len(self._open) >= MAX_DEPTH:
            raise self.fail(f"elements nested deeper than {MAX_DEPTH}; an MSCCL file has 4 levels")
        if len(attributes) > MAX_ATTRIBUTES:
            raise self.fail(f"<{tag[:40]}> has more than {MAX_ATTRIBUTES} attributes; runtimes read 16")
        node = Node(tag, self.line, attributes, [])
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node
        self._open.append(node)

    def end(self, tag: str) -> None:
        self._open.pop()

    def data(self, text: str) -> None:
        if text.strip():
            raise self.fail(f"text {text.strip()[:40]!r} between elements; remove it")

    def close(self) -> Node | None:
        return self.root


def read_program(source: str | bytes, name: str = "<text>") -> Program:
    """The program in the text of an MSCCL file; `name` is what errors call it.

    Raises:
        FormatError: not an MSCCL file, or beyond the reader's bounds.
    """
    return program_of(parse_document(source, name))


def read_program_file(path: Path) -> Program:
    """The program in the MSCCL file at that path.

    Raises:
        FormatError: not an MSCCL file, or beyond the reader's bounds.
        MissingError: there is no such file, or it cannot be read.
    """
    return read_program(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """The content of a file, never more than the reader accepts.

    Raises:
        FormatError: the file is larger than `MAX_INPUT_BYTES`.
        MissingError: there is no such file, or it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise MissingError(f"{path}: cannot be read: {error.strerror}; check the path") from error
    _check_size(len(data), str(path))
    return data


def parse_document(source: str | bytes, name: str = "<text>") -> Document:
    """The elements of a file, its attributes not yet looked at.

    Raises:
        FormatError: not well-formed XML, no `<algo>` at the top, or beyond the reader's bounds.
    """
    _check_size(len(source), name)
    text = _decode(source, name)
    builder = _TreeBuilder(name)
    # The encoding is ours, whatever an XML declaration claims: runtimes read bytes.
    parser = cast(Any, DefusedXMLParser(target=builder, encoding="utf-8", forbid_dtd=True))
    builder.expat = parser.parser
    try:
        parser.feed(text.encode())
        root = parser.close()
    except DefusedXmlException as error:
        raise builder.fail("a DTD or an entity; MSCCL files have none, remove it") from error
    except ParseError as error:
        raise FormatError(f"{name}: line {error.position[0]}: not well-formed XML: {error}") from error
    if not isinstance(root, Node) or root.name != "algo":
        found = f"<{root.name[:40]}>" if isinstance(root, Node) else "nothing"
        raise FormatError(f"{name}: line 1: expected one <algo> at the top, found {found}")
    return Document(name, text, root)


def program_of(document: Document) -> Program:
    """The program of a parsed file.

    Raises:
        FormatError: an attribute is missing or is not what it must be; names the first.
    """
    for fault in all_faults(document.algo):
        raise FormatError(f"{document.source}: {fault}")
    value = {a.name: document.algo.attributes.get(a.name, a.default or "") for a in ALGO}
    in_place = value["inplace"] == "1"
    return Program(
        name=value["name"],
        protocol=value["proto"],
        channels=to_int(value["nchannels"]),
        chunks=to_int(value["nchunksperloop"]),
        ranks=to_int(value["ngpus"]),
        collective=value["coll"],
        in_place=in_place,
        out_of_place=not in_place if value["outofplace"] == "-" else bool(to_int(value["outofplace"])),
        min_bytes=to_int(value["minBytes"]),
        max_bytes=to_int(value["maxBytes"]),
        gpus=tuple(_rank(node) for node in document.algo.named("gpu")),
        late=tuple(int(rank) for rank in value["late"].split(",") if rank),
    )


def _check_size(size: int, name: str) -> None:
    if size > MAX_INPUT_BYTES:
        raise FormatError(f"{name}: larger than {MAX_INPUT_BYTES >> 20} MiB; no runtime reads such a file")


def _decode(source: str | bytes, name: str) -> str:
    try:
        text = source if isinstance(source, str) else source.decode()
        text.encode()  # a str may hold half a surrogate pair, which is no text
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise FormatError(f"{name}: not text: byte {error.start} is not UTF-8") from error
    return text


def _rank(node: Node) -> RankProgram:
    number = _numbers(node)
    blocks = tuple(_block(child) for child in node.named("tb"))
    return RankProgram(number["id"], number["i_chunks"], number["o_chunks"], number["s_chunks"], blocks)


def _block(node: Node) -> ThreadBlock:
    number = _numbers(node)
    steps = tuple(_step(child) for child in node.named("step"))
    return ThreadBlock(number["id"], number["send"], number["recv"], number["chan"], steps)


def _step(node: Node) -> Step:
    text = node.attributes
    return Step(
        index=to_int(text["s"]),
        op=OpCode(text["type"]),
        src_buffer=Buffer(text["srcbuf"]),
        src_offset=to_int(text["srcoff"]),
        dst_buffer=Buffer(text["dstbuf"]),
        dst_offset=to_int(text["dstoff"]),
        count=to_int(text["cnt"]),
        dep_block=to_int(text["depid"]),
        dep_step=to_int(text["deps"]),
        has_dependents=bool(to_int(text["hasdep"])),
    )


def _numbers(node: Node) -> dict[str, int]:
    names = (
        ("id", "i_chunks", "o_chunks", "s_chunks") if node.name == "gpu" else ("id", "send", "recv", "chan")
    )
    return {name: to_int(node.attributes[name]) for name in names}
