"""Put a command line into a shell script whose author may have put quotes around its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from nemo_run.exceptions import ConfigError

Kind = Literal["code", "comment", "single", "double", "dollar", "here", "raw here", "other"]

_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_ -]*")
# What a shell takes out of a text before it is the value that was meant.
_ESCAPED: dict[Kind, tuple[str, str]] = {
    "single": (r"'", r"'\\''"),
    "double": (r'(["$`\\])', r"\\\1"),
    "dollar": (r"(['\\])", r"\\\1"),
    "here": (r"([$`\\])", r"\\\1"),
    "raw here": (r"(?!)", ""),
}
# They only show what they are given, so that it does not matter what a shell would make of it.
_SHOWING = ("echo", "printf", "logger", ":")


def put(script: str, mark: str, line: str) -> str:
    """Return ``script`` with the command ``line`` in place of each ``mark``, which is a word.

    Inside of quotes or of a here-document it is escaped, so that the text there is the line: what
    ``bash -c '…'`` gets is what would be run without the quotes.

    Raises:
        ConfigError: quotes are inside of quotes there, or something else that needs to be escaped
            more than once, and the line is more than plain words.
    """
    parts = script.split(mark)
    if _PLAIN.fullmatch(line):
        return line.join(parts)
    text, at = parts[0], len(parts[0])
    for part in parts[1:]:
        text += _placed(line, _place(script, at)) + part
        at += len(mark) + len(part)
    return text


@dataclass
class _Place:
    """What stands around a position of a script.

    ``value`` is what the shell will have made of the text since the quotes or the document began,
    ``command`` the first word of the command that gets it, and ``end`` the last line of a document.
    """

    kind: Kind
    value: str = ""
    command: str = ""
    end: str = ""


def _placed(line: str, place: _Place) -> str:
    if place.kind == "code":
        return line
    if place.kind == "comment":
        return line.replace("\n", "\\n")
    is_shown = place.command in _SHOWING
    is_code = is_shown or _place(place.value, len(place.value)).kind == "code"
    ends_early = bool(place.end) and place.end in line.replace("\t", "").split("\n")
    if place.kind == "other" or ends_early or not is_code:
        raise ConfigError(
            "The command cannot be put into the template: {{ command }} stands inside of quotes "
            "within quotes, of `...` or ${...}, or of a document whose end is in the command, and "
            "the command is more than plain words. Put {{ command }} on a line of its own, or "
            "between the lines bash <<'END' and END."
        )
    pattern, replacement = _ESCAPED[place.kind]
    return re.sub(pattern, replacement, line)


def _place(script: str, position: int) -> _Place:
    return _Reader(script, position).read()


_DELIMITER = re.compile(
    r"<<(?P<tabs>-?)[ \t]*(?P<word>(?:'[^']*'|\"[^\"]*\"|\\.|[^\s;&|<>()'\"\\])+)"
)
_BREAKS = frozenset(" \t;&|<>")
_ENDS = {"(": ")", "`": "`", "{": "}"}


@dataclass
class _Code:
    """Code up to ``end``; ``word`` and ``words`` are what was read of its current command."""

    end: str = ""
    word: str = ""
    words: list[str] = field(default_factory=list)
    has_word: bool = False

    def add(self, text: str) -> None:
        self.word += text
        self.has_word = True

    def end_word(self) -> None:
        if self.has_word:
            self.words.append(self.word)
        self.word, self.has_word = "", False

    def end_command(self) -> None:
        self.end_word()
        self.words = []

    @property
    def command(self) -> str:
        return self.words[0] if self.words else ""


class _Reader:
    """Reads a script up to a position, as far as quotes are concerned."""

    def __init__(self, text: str, position: int) -> None:
        self._text, self._position = text, position
        self._at = 0
        self._codes = [_Code()]
        # Of each code, whether double quotes are open in it.
        self._quoted = [False]
        self._documents: list[tuple[str, bool, bool]] = []

    def read(self) -> _Place:
        while self._at < self._position:
            found = self._in_quotes() if self._quoted[-1] else self._in_code()
            if found is not None:
                return found
        code = self._codes[-1]
        if self._quoted[-1]:
            return _Place("double", code.word, code.command)
        return _Place("code" if code.end in ("", ")") else "other")

    def _in_quotes(self) -> _Place | None:
        code, char = self._codes[-1], self._text[self._at]
        if char == '"':
            self._quoted[-1] = False
            self._at += 1
        elif char == "\\":
            following = self._text[self._at + 1 : self._at + 2]
            code.add(
                following if following in '$`"\\' else "" if following == "\n" else char + following
            )
            self._at += 2
        elif not self._opens():
            code.add(char)
            self._at += 1
        return None

    def _opens(self) -> bool:
        """Tell whether code begins here that is a part of the present one, and go into it."""
        found = re.compile(r"\$\(|\$\{|`").match(self._text, self._at)
        code = self._codes[-1]
        if found is None or (found[0] == "`" and code.end == "`"):
            return False
        code.add(found[0])
        self._go_into(_ENDS[found[0][-1]], found.end())
        return True

    def _go_into(self, end: str, at: int) -> None:
        self._codes.append(_Code(end))
        self._quoted.append(False)
        self._at = at

    def _in_code(self) -> _Place | None:
        code, char = self._codes[-1], self._text[self._at]
        if char == code.end:
            self._codes.pop()
            self._quoted.pop()
            self._codes[-1].add(char)
            self._at += 1
        elif char == "\\":
            following = self._text[self._at + 1 : self._at + 2]
            if following != "\n":
                code.add(following)
            self._at += 2
        elif char == '"' or self._text.startswith('$"', self._at):
            self._quoted[-1] = True
            code.add("")
            self._at += 1 if char == '"' else 2
        elif char == "'":
            return self._single(code)
        elif self._text.startswith("$'", self._at):
            return self._dollar(code)
        elif self._opens():
            pass
        elif char == "(":
            code.end_command()
            self._go_into(")", self._at + 1)
        elif char == "#" and self._starts_word(code):
            return self._comment()
        elif self._starts_document(code):
            pass
        elif char == "\n":
            self._at += 1
            found = self._read_documents(code)
            code.end_command()
            return found
        elif char in _BREAKS:
            code.end_word()
            if char in ";&|":
                code.end_command()
            self._at += 1
        else:
            code.add(char)
            self._at += 1
        return None

    def _starts_word(self, code: _Code) -> bool:
        return not code.has_word and code.end != "}"

    def _single(self, code: _Code) -> _Place | None:
        start = self._at + 1
        end = self._text.find("'", start)
        if end < 0 or end >= self._position:
            value = code.word + self._text[start : self._position]
            return _Place("single", value, code.command)
        code.add(self._text[start:end])
        self._at = end + 1
        return None

    def _dollar(self, code: _Code) -> _Place | None:
        found = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.S).match(self._text, self._at)
        if found is None or found.end() > self._position:
            value = code.word + self._text[self._at + 2 : self._position]
            return _Place("dollar", value, code.command)
        code.add(found[1])
        self._at = found.end()
        return None

    def _comment(self) -> _Place | None:
        end = self._text.find("\n", self._at)
        if end < 0 or end >= self._position:
            return _Place("comment")
        self._at = end
        return None

    def _starts_document(self, code: _Code) -> bool:
        if self._text.startswith("<<<", self._at):
            code.end_word()
            self._at += 3
            return True
        found = _DELIMITER.match(self._text, self._at)
        if found is None or code.end == "}" or self._is_sum():
            return False
        word = re.sub(r"""['"\\]""", "", found["word"])
        self._documents.append((word, word != found["word"], bool(found["tabs"])))
        code.end_word()
        self._at = found.end()
        return True

    def _is_sum(self) -> bool:
        # In $(( )) it moves bits.
        return len(self._codes) > 2 and self._codes[-1].end == self._codes[-2].end == ")"

    def _read_documents(self, code: _Code) -> _Place | None:
        """Skip the documents that begin with this line, or find that the position is in one."""
        for word, is_raw, has_tabs in self._documents:
            start = self._at
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                is_last = (line.lstrip("\t") if has_tabs else line) == word
                if not is_last and self._position <= end:
                    value = self._text[start : self._position]
                    code.end_word()
                    return _Place("raw here" if is_raw else "here", value, code.command, word)
                self._at = end + 1
                if is_last:
                    break
        self._documents = []
        return None
