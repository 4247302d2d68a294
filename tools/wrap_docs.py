#!/usr/bin/env python3
"""Wraps the prose of Markdown files to 120 columns: paragraphs, quotes and items of lists with a line that is
longer. Tables, code and headings stay as they are, and so does every other line.

    tools/wrap_docs.py            rewrites README.md and those in docs that are not generated
    tools/wrap_docs.py --check    names the first line of each that is too long; exits 1 if there is one
"""

import glob
import re
import sys

WIDTH = 120
GENERATED = ("docs/models.md", "docs/options.md")
ITEM = re.compile(r"( *)([-*+]|\d+\.) +")
QUOTE = "> "
FIXED = re.compile(r"\||#|<|```|~~~")  # a line that begins a block which is not prose
WORD = re.compile(r"(?:[^\s`]|`[^`]*`)+")  # code with blanks is one word
MARK = re.compile(r"([-*+>]|#+|\d+[.)]|=+)$")  # begins a block at the start of a line


def fill(lines, first, rest):
    """The words of the lines, in lines of at most WIDTH columns: the first one after ``first``."""
    words = []
    for word in WORD.findall(" ".join(line.strip() for line in lines)):
        if words and MARK.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    filled = [first + words[0]]
    for word in words[1:]:
        if len(filled[-1]) + 1 + len(word) <= WIDTH:
            filled[-1] += " " + word
        else:
            filled.append(rest + word)
    return filled


def blocks(lines):
    """Pairs of lines that belong together and the indent of their continuation; None: not prose."""
    block, indent, code = [], "", False
    for line in lines:
        fence = line.lstrip().startswith(("```", "~~~"))
        item = ITEM.match(line)
        if line.startswith(QUOTE) != (indent == QUOTE) and block:
            yield block, indent
            block = []
        fixed = code or fence or not line.strip() or FIXED.match(line.lstrip())
        literal = not block and not item and line.startswith("    ") and indent == ""
        if fixed or literal:
            if block:
                yield block, indent
            block = []
            yield [line], None
            if line.strip() and not line.startswith(" "):
                indent = ""
            code = code != fence
        elif item or not block:
            if block:
                yield block, indent
            block = [line]
            if item:
                indent = " " * item.end()
            elif not line.startswith(" "):
                indent = QUOTE if line.startswith(QUOTE) else ""
        else:
            block.append(line)
        if block and line.endswith("  "):  # a forced break
            yield block, None
            block = []
    if block:
        yield block, indent


def wrap(text):
    out = []
    for block, indent in blocks(text.split("\n")):
        if indent is None or all(len(line) <= WIDTH for line in block):
            out += block
            continue
        item = ITEM.match(block[0])
        first = QUOTE if indent == QUOTE else item.group() if item else re.match(" *", block[0]).group()
        rest = [line[len(QUOTE):] for line in block[1:]] if indent == QUOTE else block[1:]
        out += fill([block[0][len(first):], *rest], first, indent)
    return "\n".join(out)


def main():
    check, failed = sys.argv[1:] == ["--check"], False
    for name in ["README.md"] + sorted(set(glob.glob("docs/*.md")) - set(GENERATED)):
        with open(name, encoding="utf-8") as file:
            text = file.read()
        wrapped = wrap(text)
        assert wrapped.replace("\n" + QUOTE, " ").split() == text.replace("\n" + QUOTE, " ").split(), name
        if wrapped == text:
            continue
        if check:
            first = next(i for i, (old, new) in enumerate(zip(text.split("\n"), wrapped.split("\n")), 1) if old != new)
            print(f"{name}:{first}: a paragraph with lines over {WIDTH} columns: run tools/wrap_docs.py")
            failed = True
        else:
            with open(name, "w", encoding="utf-8") as file:
                file.write(wrapped)
    return failed


if __name__ == "__main__":
    sys.exit(main())
