"""Reads keyhole.h and gives what ctypes needs: structs, enums, functions.

The header is the only description of the library's interface. A second one, written by hand in
Python, would agree with it until somebody adds a field; so the package carries the header and
reads it, some forty milliseconds at import. It is C as keyhole.h writes it (typedefs of structs
and enums, function declarations, lists by X-macros), not C in general: what is not understood
raises a ValueError. tests/cli_python.sh compares every size and offset with a C compiler's.
"""
from __future__ import annotations

import ctypes
import re
from typing import Any, Dict, List, Optional, Tuple

SCALARS: Dict[str, Any] = {
    "void": None,
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "long": ctypes.c_long,
    "long long": ctypes.c_longlong,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}

TOKEN = re.compile(r'[A-Za-z_]\w*|\d+\w*|"(?:[^"\\]|\\.)*"|<<|[^\s\w]')


# ------------------------------------------------------------------------------- the preprocessor


def _arguments(text: str, at: int) -> Tuple[List[str], int]:
    """The arguments of a macro call whose parenthesis opens at `at`, and where it ends."""
    depth, quoted, start, found = 0, False, at + 1, []
    for i in range(at, len(text)):
        c = text[i]
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += {"(": 1, ")": -1}.get(c, 0)
        if (c == "," and depth == 1) or (c == ")" and depth == 0):
            found.append(text[start:i].strip())
            start = i + 1
        if c == ")" and depth == 0:
            return found, i + 1
    raise ValueError("a macro call does not end: " + text[at : at + 60])


def _expand(text: str, macros: Dict[str, Tuple[Optional[List[str]], str]]) -> str:
    out, at = [], 0
    for word in re.finditer(r'"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*', text):
        if word.start() < at or word.group() not in macros:
            continue
        names, body = macros[word.group()]
        end = word.end()
        if names is not None:
            if not text[end:].lstrip().startswith("("):
                continue
            given, end = _arguments(text, text.index("(", end))
            known = dict(zip(names, given))
            body = re.sub(r"[A-Za-z_]\w*", lambda m: known.get(m.group(), m.group()), body)
        out += [text[at : word.start()], _expand(body, macros)]
        at = end
    return "".join(out) + text[at:]


def _preprocess(source: str) -> Tuple[str, Dict[str, str]]:
    """The declarations, with macros expanded, and the macros that are plain values."""
    source = re.sub(r"/\*.*?\*/", " ", source, flags=re.S).replace("\\\n", " ")
    macros: Dict[str, Tuple[Optional[List[str]], str]] = {}
    values: Dict[str, str] = {}
    done: List[str] = []  # expanded
    kept: List[str] = []  # not yet: a macro holds from its #define to its #undef
    active = [True]  # no compiler macros are defined here: #ifdef __cplusplus is false
    for line in source.split("\n"):
        word = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        if not word:
            if all(active):
                kept.append(line)
            continue
        name, rest = word.groups()
        if name in ("if", "ifdef", "ifndef"):
            active.append(name == "ifndef")
        elif name == "else":
            active[-1] = not active[-1]
        elif name == "endif":
            active.pop()
        elif name == "undef":
            done.append(_expand("\n".join(kept), macros))
            kept = []
            macros.pop(rest.strip(), None)
        elif name == "define" and all(active):
            made = re.match(r"(\w+)(\(([\w, ]*)\))?\s*(.*)", rest)
            names = [n.strip() for n in made.group(3).split(",")] if made.group(2) else None
            macros[made.group(1)] = (names, made.group(4))
            if names is None:
                values[made.group(1)] = made.group(4).strip('"')
    return "\n".join(done + [_expand("\n".join(kept), macros)]), values


# ------------------------------------------------------------------------------------- the parser


class Header:
    """Structs, constants and functions of a header, by name."""

    def __init__(self, source: str) -> None:
        text, self.values = _preprocess(source)
        self.structs: Dict[str, Any] = {}
        self.constants: Dict[str, int] = {}
        self.functions: Dict[str, Tuple[Any, List[Any]]] = {}
        self._names: Dict[str, Any] = dict(SCALARS)
        self._tokens = TOKEN.findall(text)
        self._at = 0
        self._bodies = set(re.findall(r"\bstruct\s+(\w+)\s*\{", text))
        while self._at < len(self._tokens):
            self._declaration()

    def _peek(self, ahead: int = 0) -> str:
        i = self._at + ahead
        return self._tokens[i] if i < len(self._tokens) else ""

    def _next(self, expected: Optional[str] = None) -> str:
        token = self._peek()
        if expected is not None and token != expected:
            near = " ".join(self._tokens[max(0, self._at - 8) : self._at + 4])
            raise ValueError(f"keyhole.h: expected {expected!r}, found {token!r} in: {near}")
        self._at += 1
        return token

    def _declaration(self) -> None:
        if self._peek() == ";":
            self._next()
            return
        typedef = self._peek() == "typedef"
        if typedef:
            self._next()
        base, const = self._type()
        while self._peek() != ";":
            name, kind = self._declarator(base, const)
            if typedef:
                self._names[name] = kind
            elif isinstance(kind, tuple):
                self.functions[name] = kind
            if self._peek() == ",":
                self._next()
        self._next(";")

    def _type(self) -> Tuple[Any, bool]:
        const = False
        while self._peek() in ("const", "static", "extern"):
            const |= self._next() == "const"
        word = self._next()
        if word == "struct":
            base = self._struct()
        elif word == "enum":
            base = self._enum()
        else:
            while word == "long" and self._peek() == "long":
                word += " " + self._next()
            if word not in self._names:
                raise ValueError(f"keyhole.h: the type {word!r} is not known")
            base = self._names[word]
        while self._peek() == "const":
            const |= self._next() == "const"
        return base, const

    def _struct(self) -> Any:
        if self._peek() == "{":  # one without a name, inside another
            kind = type("unnamed", (ctypes.Structure,), {})
        else:
            tag = self._next()
            if tag not in self.structs:
                made = type(tag, (ctypes.Structure,), {}) if tag in self._bodies else None
                self.structs[tag] = made
            kind = self.structs[tag]
        if self._peek() == "{":
            self._next()
            fields = []
            while self._peek() != "}":
                base, const = self._type()
                while self._peek() != ";":
                    fields.append(self._declarator(base, const))
                    if self._peek() == ",":
                        self._next()
                self._next(";")
            self._next("}")
            kind._fields_ = fields
        return kind  # None: opaque, known by pointer alone

    def _enum(self) -> Any:
        if self._peek() != "{":
            self._next()
        if self._peek() == "{":
            self._next()
            value = -1
            while self._peek() != "}":
                name = self._next()
                value += 1
                if self._peek() == "=":
                    self._next()
                    value = self._expression()
                self.constants[name] = value
                if self._peek() == ",":
                    self._next()
            self._next("}")
        return ctypes.c_int

    def _expression(self) -> int:
        """What keyhole.h writes for values: a number, a name, a sign, a shift."""
        sign = -1 if self._peek() == "-" else 1
        if sign < 0:
            self._next()
        word = self._next()
        value = sign * (self.constants[word] if word in self.constants else int(word, 0))
        if self._peek() == "<<":
            self._next()
            value <<= self._expression()
        return value

    def _declarator(self, base: Any, const: bool) -> Tuple[str, Any]:
        kind = base
        while self._peek() in ("*", "const"):
            if self._next() == "*":
                kind = self._pointer(kind, const)
                const = False
        if self._peek() == "(" and self._peek(1) == "*":  # a pointer to a function
            self._at += 2
            name = self._next()
            self._next(")")
            return name, ctypes.CFUNCTYPE(kind, *self._parameters())
        name = self._next() if re.match(r"\w", self._peek()) else ""
        if self._peek() == "(":
            return name, (kind, self._parameters())
        while self._peek() == "[":
            self._next()
            size = 0 if self._peek() == "]" else self._expression()
            self._next("]")
            kind = kind * size
        return name, kind

    def _pointer(self, kind: Any, const: bool) -> Any:
        if kind is None:  # void, and structs without a body
            return ctypes.c_void_p
        if kind is ctypes.c_char and const:
            return ctypes.c_char_p  # text that is read; `char *` is memory to be freed
        if kind is ctypes.c_char:
            return ctypes.c_void_p
        return ctypes.POINTER(kind)

    def _parameters(self) -> List[Any]:
        self._next("(")
        found: List[Any] = []
        while self._peek() != ")":
            base, const = self._type()
            if not (base is None and self._peek() == ")"):
                kind = self._declarator(base, const)[1]
                found.append(kind)
            if self._peek() == ",":
                self._next()
        self._next(")")
        return found
