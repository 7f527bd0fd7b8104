"""Files of a run that are written whole or not at all.

They lie in a hidden folder beside their prefix, which one run holds at a time, and are renamed when
all of them are there. What make-list, too, waits for as it starts is imported where it is used.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from im2rec.errors import BusyError, OutputError
from im2rec.interrupts import signals_held

COPY_SIZE = 1 << 20  # bytes read at a time where files are read to their end


class Output:
    """The files of one run, kept in a hidden folder beside PREFIX until `publish` renames them.

    As a context manager it takes the prefix for itself (a lock that dies with its holder) and
    clears what a killed run left; leaving it removes all that was not published.

    fsync: flush every file and the folder to disk before a name becomes final. keep: let what has
    a note (`keep_note`) stay, and the note, until something has been published. longest: the
    longest ending that PREFIX will get. Raises OutputError where the folder cannot be written or
    takes no such name, BusyError where another run holds the prefix.
    """

    def __init__(self, prefix: str, *, fsync: bool, keep: bool = False, longest: str = "") -> None:
        self.prefix = prefix
        self._longest = longest
        self.folder, self.stem = os.path.split(prefix)
        self.fsync = fsync
        self.work = _work_folder(prefix)
        self._keep = [keep]  # shared with what clears up
        self._leave: weakref.finalize[[str, int, int, list[bool]], Output] | None = None

    def __enter__(self) -> Output:
        if not self.stem:
            raise OutputError(self.prefix, "the prefix ends with no name", "give PREFIX a name")
        if not _is_utf8(self.stem):
            raise OutputError(self.prefix, "the name is not UTF-8", "choose another")
        with writing(self.work):
            if not os.path.isdir(self.folder or "."):
                raise OutputError(self.prefix, f"there is no folder {self.folder!r}", "make it")
            self._check_length()
            try:
                with signals_held():
                    lock = _lock(self.work, self.prefix)
                    # At the latest, it runs when nothing refers to this object any more: a signal
                    # that comes as the context is left keeps __exit__ from its work.
                    self._leave = weakref.finalize(
                        self, _leave, self.work, lock, os.getpid(), self._keep
                    )
                    _clear(self.work, self._keep[0])
            except BaseException:
                self.__exit__()
                raise
        return self

    def _check_length(self) -> None:
        """Raises OutputError for too long a name: without this, it would be when all is done."""
        try:
            os.lstat(self.prefix + self._longest)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                found = f"the name with {self._longest!r} behind it is too long"
                raise OutputError(self.prefix, found, "choose a shorter PREFIX") from error

    def __exit__(self, *_: object) -> None:
        if self._leave:
            with signals_held():
                self._leave()

    def path(self, name: str) -> str:
        """Where a file lies until it is published."""
        return os.path.join(self.work, name)

    def write(self, name: str, data: bytes) -> str:
        """Writes one small file whole; where it lies until it is published."""
        path = self.path(name)
        with writing(os.path.join(self.folder, name)), open(path, "wb") as file:
            file.write(data)
        return path

    def keep_note(self, stem: str, note: bytes) -> None:
        """Notes that the files STEM.rec and STEM.idx are whole: they may stay when the run ends."""
        with writing(self.prefix):
            with open(self.path("note"), "wb") as file:
                file.write(note)
            os.replace(self.path("note"), self.path(stem + NOTE))

    def notes(self) -> dict[str, bytes]:
        """The notes that a stopped run left, by their stems, in the order of their names."""
        notes = {}
        with writing(self.prefix):
            for stem in sorted(_noted(self.work)):
                with open(self.path(stem + NOTE), "rb") as file:
                    notes[stem] = file.read()
        return notes

    def forget(self, stem: str) -> None:
        """Removes a shard that was noted to be whole, and its note first."""
        with writing(self.prefix):
            for end in (NOTE, ".rec", ".idx"):
                with suppress(FileNotFoundError):
                    os.unlink(self.path(stem + end))

    def publish(
        self,
        files: Mapping[str, str],
        stale: Iterable[str] = (),
        *,
        if_changed: bool = False,
        keep: bool = False,
        new: bool = False,
    ) -> list[str]:
        """Gives the files their final names, in this order, then removes stale older ones.

        files: where each lies, by its name in PREFIX's folder; stale: names there. if_changed:
        leave a file alone that has these bytes already; keep: let what is noted stay all the same,
        for it is none of these; new: replace nothing. Returns the names that were given. Signals
        wait until it is done, so that an interrupted run has either published everything or
        nothing. Raises OutputError, and nothing has changed.
        """
        stale = set(stale) - set(files)
        for name in (*files, *stale):  # found only at its turn, a folder would stop it half done
            final = os.path.join(self.folder, name)
            if os.path.isdir(final):
                raise OutputError(final, "there is a folder of this name", "move it away")
        if if_changed:
            files = {
                name: path
                for name, path in files.items()
                if not _is_same(path, os.path.join(self.folder, name))
            }
        if self.fsync:
            for name, path in files.items():
                with writing(os.path.join(self.folder, name)):
                    flush(path, os.O_RDWR)
        with signals_held():
            self._rename_all(files, new=new)
            self._keep[0] = self._keep[0] and keep
            for name in stale:
                old = os.path.join(self.folder, name)
                with writing(old), suppress(FileNotFoundError):
                    os.unlink(old)
            if self.fsync and sys.platform != "win32":  # Windows cannot open a folder
                with writing(self.folder or "."):
                    flush(self.folder or ".", os.O_RDONLY)
        return list(files)

    def publish_folder(self, path: str) -> None:
        """Makes a folder that lies in the hidden one the prefix itself, where there is nothing or
        an empty folder. Signals wait until it is done."""
        with writing(self.prefix):
            if self.fsync:
                flush_all(path)
            with signals_held():
                like = os.stat(self.prefix) if os.path.isdir(self.prefix) else None
                if sys.platform == "win32" and like:
                    os.rmdir(self.prefix)
                os.rename(path, self.prefix)
                if like:  # only now, for what cannot be written cannot be moved
                    os.chmod(self.prefix, stat.S_IMODE(like.st_mode))
                if self.fsync and sys.platform != "win32":
                    flush(self.folder or ".", os.O_RDONLY)

    def _set_aside(self, final: str, name: str) -> str | None:
        """Keeps an older file until all are renamed; where it is then, or None for no such file."""
        if not os.path.lexists(final):
            return None
        linked, moved = (os.path.join(self.work, folder, name) for folder in (_LINKED, _MOVED))
        for older in (linked, moved):
            with suppress(FileExistsError):
                os.mkdir(os.path.dirname(older))
        try:
            os.link(final, linked)
            return linked
        except FileNotFoundError:  # it has just been removed
            return None
        except OSError:  # a file system without links
            os.replace(final, moved)
            return moved

    def _rename_all(self, files: Mapping[str, str], *, new: bool) -> None:
        """Renames the files; where one cannot be, takes back what was done before."""
        older: dict[str, str | None] = {}
        done: set[str] = set()
        try:
            for name, path in files.items():
                final = os.path.join(self.folder, name)
                if new:
                    check_new(final)
                with writing(final):
                    older[name] = self._set_aside(final, name)
                    os.replace(path, final)
                done.add(name)
        except OutputError:
            for name, aside in reversed(older.items()):
                with suppress(OSError):
                    self._take_back(name, files[name] if name in done else None, aside)
            raise

    def _take_back(self, name: str, path: str | None, aside: str | None) -> None:
        """Undoes what was done for one name. path: where the new file lay, if it was renamed;
        aside: where the older one is."""
        final = os.path.join(self.folder, name)
        if path:  # it may be what is to be kept
            try:
                os.link(final, path)
            except OSError:
                os.replace(final, path)
        if aside:
            os.replace(aside, final)
        elif path:
            with suppress(FileNotFoundError):
                os.unlink(final)


def _work_folder(prefix: str) -> str:
    folder, stem = os.path.split(prefix)
    return os.path.join(folder, f".{stem}.im2rec")


_LOCK_NAME = "lock"
# Folders in the work folder for the older files, by their own names, while new ones are renamed: of
# those in the first one, the final name is a link to the same file; of those in the other, it is
# gone until the new file has it.
_LINKED, _MOVED = "older", "moved"
NOTE = ".whole"  # the ending of what says that a shard in the work folder is whole


def _noted(work: str) -> list[str]:
    """The stems of the files that a note says to be whole."""
    return [
        name.removesuffix(NOTE)
        for name in os.listdir(work)
        if name.endswith(NOTE) and is_plain_file(os.path.join(work, name))
    ]


def is_plain_file(path: str) -> bool:
    """Whether there is a regular file, and no link to one."""
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return False


_locks: set[int] = set()  # file descriptors of this process that hold one


def _forget_locks() -> None:
    """In a forked process: one that outlives the run, for it hangs, must not keep its lock."""
    for fd in _locks:
        os.close(fd)
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _lock(work: str, prefix: str) -> int:
    """Makes the work folder and locks it; the file descriptor that holds the lock."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(work)
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(work).st_mode):  # what a link leads to is not ours
                raise OutputError(work, "not a folder", "remove it")
        path = os.path.join(work, _LOCK_NAME)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except FileNotFoundError:
            continue  # its last holder has just removed the folder
        try:
            _lock_file(fd)
        except OSError as error:
            os.close(fd)
            if isinstance(error, (BlockingIOError, PermissionError)):  # the latter on Windows
                raise BusyError(prefix) from None
            raise  # a file system without locks
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                _locks.add(fd)
                return fd
        os.close(fd)  # locked, but the folder was removed meanwhile


def _lock_file(fd: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _clear(work: str, keep: bool) -> None:
    """Removes what was not published, or what a killed run left: all but the lock and, where they
    are to be kept, the files that are noted."""
    _put_back(work)
    stay = {_LOCK_NAME}
    if keep:
        stay.update(stem + end for stem in _noted(work) for end in (".rec", ".idx", NOTE))
    for name in os.listdir(work):
        path = os.path.join(work, name)
        if os.path.isdir(path) and not os.path.islink(path):
            import shutil

            shutil.rmtree(path)
        elif name not in stay:
            os.unlink(path)


def _put_back(work: str) -> None:
    """Gives older files their names again that a run had moved aside when it was killed, and
    removes those that were set aside for nothing."""
    for folder in (os.path.join(work, _LINKED), os.path.join(work, _MOVED)):
        if os.path.islink(folder) or not os.path.isdir(folder):
            continue
        for name in os.listdir(folder):
            older, final = os.path.join(folder, name), os.path.join(os.path.dirname(work), name)
            if os.path.basename(folder) == _MOVED and not os.path.lexists(final):
                os.replace(older, final)
            else:
                with suppress(OSError):  # a folder, which is not ours
                    os.unlink(older)
        with suppress(OSError):
            os.rmdir(folder)


def _is_same(path: str, final: str) -> bool:
    """Whether there is a file of the final name that has the same bytes."""
    if not os.path.isfile(final):  # a FIFO would be waited for
        return False
    try:
        with open(path, "rb") as new, open(final, "rb") as old:
            if os.fstat(new.fileno()).st_size != os.fstat(old.fileno()).st_size:
                return False
            while data := new.read(COPY_SIZE):
                if old.read(COPY_SIZE) != data:
                    return False
    except OSError:  # not there, or what there is cannot be read: it is replaced
        return False
    return True


def kept_count(prefix: str) -> int:
    """How many shards a stopped run of this prefix has left to be used again."""
    try:
        return len(_noted(_work_folder(prefix)))
    except OSError:
        return 0


def _leave(work: str, lock: int, owner: int, keep: list[bool]) -> None:
    """Removes the work folder and gives up the lock; in a forked copy of the owner, nothing."""
    if os.getpid() != owner:
        return
    _locks.discard(lock)
    with suppress(OSError):  # what stays is cleared by the next run
        try:
            _clear(work, keep[0])
        finally:
            if sys.platform == "win32":  # an open file cannot be removed there
                os.close(lock)
        # The lock goes last: from then on the folder may be another run's.
        os.unlink(os.path.join(work, _LOCK_NAME))
        os.rmdir(work)
    if sys.platform != "win32":
        os.close(lock)


def flush(path: str, flags: int) -> None:
    """Sends a file or folder, opened with these flags, to disk. Raises OSError."""
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def flush_all(folder: str) -> None:
    """Sends all that a folder's file system has not yet written to disk: of a million files, this
    takes a small part of the time that it takes one by one. On Windows it does nothing. Raises
    OSError."""
    if sys.platform == "linux":  # where it tells of errors, and waits for one file system alone
        import ctypes

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is not None:
            fd = os.open(folder, os.O_RDONLY)
            try:
                if syncfs(fd):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), folder)
            finally:
                os.close(fd)
            return
    if hasattr(os, "sync"):
        os.sync()


def check_new(path: str) -> None:
    """Raises OutputError where there is anything of this name."""
    if os.path.lexists(path):
        raise OutputError(path, "there is a file of this name", "choose another")


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns an OSError into an OutputError about this path."""
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        raise OutputError(path, found[0].lower() + found[1:]) from error
