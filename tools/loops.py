#!/usr/bin/env python3
"""Analyses the innermost loops of a compiled copy of our kernels with llvm-mca, for a processor that
need not be available: cycles per iteration, and the overheads that a good loop avoids. Works on the
object file in build/release; nothing is executed (docs/avx512.md).

    loops.py [-c CPU] [-m LEAST] OBJECT [FUNCTION]

OBJECT is a source's name and its copy, such as winograd.avx512; FUNCTION a part of names; loops of
less than LEAST arithmetic instructions on vectors are left out. A loop is the code between a jump
back and its target, without loops inside; branches within count as not taken. llvm-mca assumes that
every load hits the L1 cache and ignores address conflicts: the result is a lower bound.

The columns: cycles per iteration; arithmetic instructions on whole vectors and, of those,
multiply-adds; the share of the ports' limit, two a cycle; operands in memory and, of those, stores;
moves of vectors to or from the stack; instructions on mask registers; gathers and scatters;
arithmetic on single numbers."""
import argparse
import glob
import re
import subprocess
import sys

ARITHMETIC = re.compile(r"v(f?n?m?add|f?n?m?sub|fn?m(add|sub)\d+|mul|div|sqrt|max|min)[ps][sd]$")
JUMP = re.compile(r"j[a-z]+$")


def disassemble(path):
    """[(function, [(address, mnemonic, operands)])]"""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True,
                          capture_output=True, text=True).stdout
    functions = []
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <([^>]+)>:$", line)
        if head:
            functions.append((head[1], []))
        code = re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*([^#<]*)", line)
        if code and functions:
            functions[-1][1].append((int(code[1], 16), code[2], code[3].strip()))
    return functions


def innermost(code):
    """Bodies of loops, the jump back left out."""
    loops = []
    for end, (address, name, operands) in enumerate(code):
        if not JUMP.match(name) or not re.match(r"[0-9a-f]+$", operands):
            continue
        target = int(operands, 16)
        if not code[0][0] <= target <= address:
            continue
        start = next(i for i, c in enumerate(code) if c[0] >= target)
        inner = any(start <= first and last <= end for first, last in loops)
        if not inner and all(c[1] != "ret" for c in code[start:end]):
            loops.append((start, end))
    return [(code[a][0], [c for c in code[a:b] if not JUMP.match(c[1])]) for a, b in loops]


def cycles(body, cpu):
    rounds = 200
    text = "".join(f"{name} {operands}\n" for _, name, operands in body)
    mca = subprocess.run(["llvm-mca", "-mtriple=x86_64", f"-mcpu={cpu}", f"-iterations={rounds}",
                          "-instruction-info=0", "-resource-pressure=0"], input=text,
                         capture_output=True, text=True)
    found = re.search(r"Total Cycles:\s+(\d+)", mca.stdout)
    return int(found[1]) / rounds if found else float("nan")


def describe(body):
    vector = [c for c in body if ARITHMETIC.match(c[1]) and c[1][-2] == "p"]
    fma = [c for c in vector if re.match(r"vfn?m", c[1])]
    memory = [c for c in body if "(" in c[2] and not c[1].startswith(("lea", "prefetch", "nop"))]
    stores = [c for c in memory if c[2].endswith(")") and not c[1].startswith(("cmp", "test"))]
    stack = [c for c in memory if re.search(r"\(%r[sb]p\b", c[2]) and c[1].startswith("vmov")]
    masks = [c for c in body if "%k" in c[2]]
    gathers = [c for c in body if "gather" in c[1] or "scatter" in c[1]]
    single = [c for c in body if ARITHMETIC.match(c[1]) and c[1][-2] == "s"]
    return [len(x) for x in (vector, fma, memory, stores, stack, masks, gathers, single)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", default="skylake-avx512", help="processor, as llvm-mca names it")
    parser.add_argument("-m", type=int, default=4)
    parser.add_argument("object")
    parser.add_argument("function", nargs="?", default="")
    options = parser.parse_args()
    paths = glob.glob(f"build/release/**/{options.object}.c.o", recursive=True)
    if not paths:
        sys.exit(f"loops: no {options.object}.c.o under build/release")
    print(f"{'loop':34}{'cycles':>8}{'vector':>7}{'fma':>5}{'share':>7}{'memory':>7}{'stores':>7}"
          f"{'stack':>6}{'masks':>6}{'gather':>7}{'single':>7}")
    for function, code in disassemble(paths[0]):
        if options.function not in function:
            continue
        for address, body in innermost(code):
            counts = describe(body)
            if counts[0] < options.m:
                continue
            time = cycles(body, options.c)
            print(f"{function + '+' + hex(address - code[0][0]):34}{time:8.1f}{counts[0]:7}"
                  f"{counts[1]:5}{counts[0] / 2 / time:7.0%}{counts[2]:7}{counts[3]:7}"
                  f"{counts[4]:6}{counts[5]:6}{counts[6]:7}{counts[7]:7}")


main()
