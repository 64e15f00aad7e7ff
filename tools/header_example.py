#!/usr/bin/env python3
"""Puts examples/method.c at the top of include/keyhole.h again, after either was changed (tests/cli_api.sh compares them)."""
import re

program = open("examples/method.c").read()
program = program[program.index("#include <keyhole.h>"):].rstrip("\n")
shown = "\n".join((" *     " + line).rstrip() for line in program.split("\n"))
header = open("include/keyhole.h").read()
start = header.index(" *     #include <keyhole.h>")
end = re.compile(r"^ \*     \}$", re.M).search(header, start).end()
open("include/keyhole.h", "w").write(header[:start] + shown + header[end:])
