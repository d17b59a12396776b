"""Folders opened beneath a root, so that no link or mount can redirect a deletion.

The kernel resolves the path in one call (`openat2`), and later calls are relative to the folder, so a link created in
between has no effect.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from distcommit.core.interfaces.file_system import OutsideRootError

_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC
_READABLE = os.O_RDONLY | _FOLDER
_REFERENCE = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER
_OPENAT2 = 437  # the same number on all architectures
_NO_MOUNT, _NO_MAGIC_LINK, _NO_LINK, _BENEATH = 0x01, 0x02, 0x04, 0x08
_CONFINED = _NO_MOUNT | _NO_MAGIC_LINK | _BENEATH
_NOT_SUPPORTED = {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG}  # old kernels, and containers that forbid it
_syscall = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)


def open_below(root: str, folder: str, *, readable: bool = False) -> int:
    """Open a root or a folder beneath it, and return the descriptor, which the caller closes.

    Args:
        root: an absolute path, which may contain links.
        folder: the root, or a path that begins with it. A link that stays inside the root is followed.
        readable: whether the folder will be listed.

    Raises:
        OutsideRootError: if a component below the root is a link out of it, or a mount point.
        FileNotFoundError: if the folder does not exist.
    """
    flags = _READABLE if readable else _REFERENCE
    relative = folder[len(root) :].strip("/")
    if not relative:
        return os.open(root, flags)
    root_fd = os.open(root, _REFERENCE)
    try:
        return _open_below(root_fd, root, folder, relative, flags)
    finally:
        os.close(root_fd)


def _open_below(root_fd: int, root: str, folder: str, relative: str, flags: int) -> int:
    try:
        return _resolve(root_fd, relative, flags, _CONFINED)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):  # a mount, or a link that may still stay inside
            return _follow_inside(root_fd, root, folder, flags)
        raise OSError(error.errno, error.strerror, folder) from None


def _follow_inside(root_fd: int, root: str, folder: str, flags: int) -> int:
    real, real_root = os.path.realpath(folder), os.path.realpath(root)
    if real.startswith(real_root.rstrip("/") + "/"):
        try:
            return _resolve(root_fd, real[len(real_root) :].strip("/"), flags, _CONFINED | _NO_LINK)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ELOOP):
                raise OSError(error.errno, error.strerror, folder) from None
    raise OutsideRootError(errno.ELOOP, f"a symbolic link or a mount leads out of {root} to {real}", folder)


def _resolve(root_fd: int, relative: str, flags: int, resolve: int) -> int:
    if _syscall is not None:
        open_how = struct.pack("QQQ", flags, 0, resolve)
        opened = int(_syscall(_OPENAT2, root_fd, os.fsencode(relative), open_how, len(open_how)))
        if opened >= 0:
            return opened
        code = ctypes.get_errno()
        if code not in _NOT_SUPPORTED:
            raise OSError(code, os.strerror(code), relative)
    return walk(root_fd, relative, flags)


def walk(root_fd: int, relative: str, flags: int) -> int:
    """Open each component without following links, for kernels without `openat2`.

    A mount of another device is rejected. A mount of the same device is not detected.
    """
    device, opened = os.fstat(root_fd).st_dev, os.dup(root_fd)
    names = relative.split("/")
    for index, name in enumerate(names):
        above = opened
        last = index == len(names) - 1
        try:
            opened = os.open(name, (flags if last else _REFERENCE) | os.O_NOFOLLOW, dir_fd=above)
        except NotADirectoryError:
            is_link = os.path.islink(f"/proc/self/fd/{above}/{name}")
            raise OSError(errno.ELOOP if is_link else errno.ENOTDIR, "not a folder", relative) from None
        finally:
            os.close(above)
        if os.fstat(opened).st_dev != device:
            os.close(opened)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), relative)
    return opened
