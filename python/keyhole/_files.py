"""Files of a run folder, which may come from a stranger: links in it are neither written through nor read.

What the library writes goes through src/base/file.c in the same way.
"""
from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Iterator

from ._library import K, fail


def make_folder(path: Path) -> None:
    """A folder within a run; a link in its place is refused."""
    try:
        path.mkdir()
    except FileExistsError:
        if path.is_symlink() or not path.is_dir():
            raise fail(K.KH_EIO, f"{path}: is a link, or no folder; it is not followed: remove it first") from None


def write_file(path: Path, data: bytes) -> None:
    """Replaces a file: made under a name that nobody can know before, then renamed, within the folder that
    was opened once. A link in its place is replaced and not followed."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    temporary = f"{path.name}.tmp-{secrets.token_hex(8)}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=folder), "wb") as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise
    finally:
        os.close(folder)


def is_own(path: Path) -> bool:
    """Whether it is a file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def own_files(root: Path) -> Iterator[Path]:
    """The files of a folder and of those in it, in order; not what links lead to."""
    for folder, folders, names in os.walk(root, followlinks=False):
        folders.sort()
        yield from (p for p in (Path(folder) / name for name in sorted(names)) if is_own(p))
