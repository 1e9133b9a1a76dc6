"""Started by test_crash.py: forks writers that change a file through the sandbox until they are killed."""

from __future__ import annotations

import os
import sys

import anyio

from armarium.capabilities.sandbox.reads.file_content import ReadLimits
from armarium.capabilities.sandbox.roots import Root, Roots
from armarium.capabilities.sandbox.service import ChangeEvents, Sandbox
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.capabilities.sandbox.tools import TOOLS
from armarium.foundation.events import Events
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.tools import Call, bind_tools

FILLER = "".join(f"filler line {number}\n" for number in range(5000))


def content_of(how: str, version: int) -> str:
    """The content of the file after that many changes."""
    if how == "overwrite":
        return f"version {version:06}\n" * 20_000
    if how == "append":
        return "".join(appended(number) for number in range(version + 1))
    return f"version {version:06}\n{FILLER}end of version {version:06}\n"


def appended(number: int) -> str:
    return f"record {number:06}\n" * 2000


def patch_to(version: int) -> str:
    """A patch of the first and the last line, so that a partial patch is detected."""
    last = FILLER.count("\n") + 2
    before, after = f"version {version - 1:06}", f"version {version:06}"
    return (
        f"--- file.txt\n+++ file.txt\n@@ -1 +1 @@\n-{before}\n+{after}\n"
        f"@@ -{last} +{last} @@\n-end of {before}\n+end of {after}\n"
    )


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


async def write_forever(directory: str, how: str) -> None:
    roots = Roots([Root("root", directory, allowed_tools=["*"])])
    sandbox = Sandbox(roots, Workers([], [], confine="off"), ChangeEvents(Events()), ReadLimits(1, 1), 1)
    tools = {tool.name: tool for tool in bind_tools(TOOLS, sandbox)}
    place = {"root": "root", "path": "file.txt"}
    version = 0
    say(f"pid {os.getpid()}")
    while True:
        version += 1
        say(f"begin {version}")
        if how == "patch":
            await tools["patch_file"].run(Call(LOCAL), {**place, "patch": patch_to(version)})
        else:
            content = content_of(how, version) if how == "overwrite" else appended(version)
            await tools["write_file"].run(Call(LOCAL), {**place, "content": content, "mode": how})
        say(f"done {version}")


def main() -> None:
    """For every line on standard input, fork a writer of that kind, and report when it is dead."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            anyio.run(write_forever, sys.argv[1], line.strip())
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main()
