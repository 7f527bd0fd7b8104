"""Measures im2rec against what the machine can do and, where it is there, against the real MXNet.

    python tests/benchmarks/run.py --photos DIR [--mxnet PYTHON] [--only NAME...] [--pairs N]

--photos: a folder of class folders with JPEG photographs; some 100 kB each say most. --mxnet: the
python of an environment with MXNet 1.9.1. Every figure is a ratio of times, theirs / ours, so that
more is better: of whole processes run in turn (or, where said so, of a loop in each), the median of
N pairs, with the page cache warm, nothing written over, and without flushing to disk unless said
otherwise. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PEERS = str(Path(__file__).parent / "peers.py")
IM2REC = [sys.executable, "-m", "im2rec"]
PACK = ["pack", "--no-fsync", "-q"]
CPUS = len(os.sched_getaffinity(0))
SLOW_OPEN = 0.005  # seconds that opening an image takes on simulated slow storage

# Put on PYTHONPATH, this makes every opening below the photographs' folder slow.
SLOW_STORAGE = """
import os, time
real = os.open
def slow(path, *arguments, **more):
    if os.fsencode(path).startswith(os.fsencode({root!r})):
        time.sleep({seconds})
    return real(path, *arguments, **more)
os.open = slow
"""


class Bench:
    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.photos, self.mxnet = os.path.abspath(arguments.photos), arguments.mxnet
        self.pairs, self.work = arguments.pairs, work
        self.images, self.records = arguments.images, arguments.records
        self.table: list[tuple[str, str, str, str]] = []
        self.env = dict(os.environ)
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles this package

    # --- measuring ----------------------------------------------------------------------------

    def seconds(self, command: list[str], **options: object) -> float:
        """Wall time of one run of a command."""
        self.clean()  # to write over a file is slower, and ext4 flushes it
        begin = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            cwd=self.work,
            stdout=subprocess.DEVNULL,
            **{"env": self.env, **options},  # type: ignore[call-overload]
        )
        return time.perf_counter() - begin

    def printed(self, command: list[str]) -> float:
        """The seconds that a command says its loop took."""
        self.clean()
        done = subprocess.run(
            command, check=True, cwd=self.work, stdout=subprocess.PIPE, env=self.env
        )
        return float(done.stdout)

    def compare(
        self, what: str, goal: str, ours: Callable[[], float], theirs: Callable[[], float]
    ) -> None:
        """Runs the two in turn and notes the median ratio, which passes over a first pair that had
        to read from disk."""
        ratios, times = [], []
        for _ in range(self.pairs):
            own, other = ours(), theirs()
            ratios.append(other / own)
            times.append(own)
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        self.note(what, goal, f"{statistics.median(ratios):.2f} ({spread})", times)

    def note(self, what: str, goal: str, figure: str, times: list[float]) -> None:
        seconds = f"{statistics.median(times):.2f} s" if times else ""
        self.table.append((what, goal, figure, seconds))
        print(f"{what}: {figure} (goal {goal}) {seconds}", file=sys.stderr, flush=True)

    def clean(self) -> None:
        """Removes what the last run wrote."""
        for path in self.work.glob("out*"):
            if path.suffix != ".lst" or path.name == "outlist.lst":
                path.unlink()

    # --- material -----------------------------------------------------------------------------

    def photo_list(self) -> str:
        """A list of `images` rows over the photographs, all of them in turn."""
        path = self.work / "photos.lst"
        if not path.exists():
            root = Path(self.photos)
            names = sorted(
                str(each.relative_to(root))
                for each in root.rglob("*")
                if each.suffix.lower() in (".jpg", ".jpeg")
            )
            random.Random(1).shuffle(names)
            with path.open("w", encoding="utf-8", newline="\n") as file:
                for number in range(self.images):
                    file.write(f"{number}\t{number % 1000}\t{names[number % len(names)]}\n")
        return str(path)

    def small_records(self) -> str:
        """A .rec of `records` records of 100 bytes, with its index."""
        path = self.work / "small.rec"
        if not path.exists():
            image = random.Random(2).randbytes(100 - 24)
            with path.open("wb") as rec, path.with_suffix(".idx").open("wb") as idx:
                at = 0
                for number in range(self.records):
                    payload = struct.pack("<IfQQ", 0, number % 1000, number, 0) + image
                    rec.write(struct.pack("<II", 0xCED7230A, len(payload)) + payload)
                    idx.write(b"%d\t%d\n" % (number, at))
                    at += 8 + len(payload)
        return str(path)

    def photo_records(self) -> str:
        """The photographs packed as they are."""
        path = self.work / "whole.rec"
        if not path.exists():
            shutil.copy(self.photo_list(), self.work / "whole.lst")
            self.seconds([*IM2REC, *PACK, "--pass-through", "whole", self.photos])
        return str(path)

    def set_up(self, name: str) -> None:
        """Puts the list of photographs where a packer expects it."""
        shutil.copy(self.photo_list(), self.work / f"{name}.lst")

    # --- what is measured ---------------------------------------------------------------------

    def help(self) -> None:
        for option in ("--help", "--version"):
            self.compare(
                f"`im2rec {option}` / `python -c 'import click'`",
                "0.5",
                lambda option=option: self.seconds([*IM2REC, option]),  # type: ignore[misc]
                lambda: self.seconds([sys.executable, "-c", "import click"]),
            )

    def resize(self) -> None:
        self.set_up("out")
        limit = [
            sys.executable,
            PEERS,
            "all_cores",
            "limit_pack",
            "out.lst",
            self.photos,
            "outlimit",
        ]
        for name, options in (("one shard", []), ("8 shards", ["--shards", "8"])):
            ours = [*IM2REC, *PACK, "--resize", "256", *options, "out", self.photos]
            self.compare(
                f"`pack --resize 256`, {name} / {CPUS} bare loops",
                "0.97",
                lambda ours=ours: self.seconds(ours),  # type: ignore[misc]
                lambda: self.seconds(limit),
            )
        self.parent_share([*PACK, "--resize", "256", "out", self.photos])
        fsync = [*IM2REC, "pack", "-q", "--resize", "256", "out", self.photos]
        self.compare(
            "the same, flushed to disk / not flushed",
            "",
            lambda: self.seconds(fsync),
            lambda: self.seconds([*IM2REC, *PACK, "--resize", "256", "out", self.photos]),
        )
        slow = self.work / "slow"
        slow.mkdir(exist_ok=True)
        text = SLOW_STORAGE.format(root=self.photos, seconds=SLOW_OPEN)
        (slow / "sitecustomize.py").write_text(text, encoding="utf-8")
        self.compare(
            "the same, 5 ms to open each file / page cache",
            "",
            lambda: self.seconds(
                [*IM2REC, *PACK, "--resize", "256", "out", self.photos],
                env={**self.env, "PYTHONPATH": str(slow)},
            ),
            lambda: self.seconds([*IM2REC, *PACK, "--resize", "256", "out", self.photos]),
        )
        self.compare(
            "64 workers / as many as CPUs",
            "0.9",
            lambda: self.seconds(
                [*IM2REC, *PACK, "--workers", "64", "--resize", "256", "out", self.photos]
            ),
            lambda: self.seconds([*IM2REC, *PACK, "--resize", "256", "out", self.photos]),
        )
        if self.mxnet:
            self.compare(
                "`pack --resize 256` / im2rec.py",
                "1.2",
                lambda: self.seconds([*IM2REC, *PACK, "--resize", "256", "out", self.photos]),
                lambda: self.seconds(self.im2rec_py("--resize", "256"), stderr=subprocess.DEVNULL),
            )
        self.clean()

    def im2rec_py(self, *options: str) -> list[str]:
        module = [self.mxnet, "-m", "mxnet.tools.im2rec", "--num-thread", str(CPUS)]
        return [*module, *options, str(self.work / "out.lst"), self.photos]

    def parent_share(self, arguments: list[str]) -> None:
        """The processor time of the parent process in that of its workers."""
        code = (
            "import atexit, resource, sys\n"
            "def tell():\n"
            "    own, all = (resource.getrusage(who) for who in (resource.RUSAGE_SELF,"
            " resource.RUSAGE_CHILDREN))\n"
            "    print((own.ru_utime + own.ru_stime) / (all.ru_utime + all.ru_stime))\n"
            "atexit.register(tell)\n"
            "from im2rec.cli import main\nmain()\n"
        )
        shares = [self.printed([sys.executable, "-c", code, *arguments]) for _ in range(self.pairs)]
        self.note(
            "parent's processor time / its workers'",
            "at most 3 %",
            f"{100 * statistics.median(shares):.1f} %",
            [],
        )

    def pass_through(self) -> None:
        self.set_up("out")
        paths = [
            line.split("\t")[2] for line in Path(self.photo_list()).read_text("utf-8").splitlines()
        ]
        names = self.work / "names"
        names.write_bytes(b"".join(p.encode() + b"\0" for p in paths))
        cat = ["sh", "-c", 'cd "$1" && xargs -0 cat <"$2" >"$3"', "sh", self.photos, str(names)]
        self.compare(
            "`pack --pass-through` / `cat` of the same files",
            "0.9",
            lambda: self.seconds([*IM2REC, *PACK, "--pass-through", "out", self.photos]),
            lambda: self.seconds([*cat, str(self.work / "outcat")]),
        )
        self.parent_share([*PACK, "--pass-through", "out", self.photos])
        if self.mxnet:
            self.compare(
                "`pack --pass-through` / im2rec.py",
                "2",
                lambda: self.seconds([*IM2REC, *PACK, "--pass-through", "out", self.photos]),
                lambda: self.seconds(self.im2rec_py("--pass-through"), stderr=subprocess.DEVNULL),
            )
        self.clean()

    def dct_scaling(self) -> None:
        """Photographs of 12 megapixels, made by enlarging those that are there."""
        root = self.work / "large"
        subprocess.run(
            [sys.executable, PEERS, "enlarge", self.photo_list(), self.photos, str(root)],
            check=True,
        )
        names = sorted(path.name for path in root.iterdir())
        lines = [f"{at}\t0\t{names[at % len(names)]}\n" for at in range(10 * len(names))]
        (self.work / "out.lst").write_text("".join(lines), encoding="utf-8")
        pack = [*IM2REC, *PACK, "--resize", "256"]
        self.compare(
            "`pack --resize 256 --dct-scaling` of 12-megapixel JPEGs / without",
            "3",
            lambda: self.seconds([*pack, "--dct-scaling", "out", str(root)]),
            lambda: self.seconds([*pack, "out", str(root)]),
        )
        png = [*pack, "--encoding", ".png"]
        paths = {}
        for name, options in (
            ("area", ["--interpolation", "area"]),
            ("scaled", ["--dct-scaling"]),
            ("linear", []),
        ):
            self.seconds([*png, *options, "out", str(root)])
            paths[name] = self.work / f"{name}.rec"
            (self.work / "out.rec").rename(paths[name])
        for name, goal in (("scaled", "40"), ("linear", "")):
            psnr = self.printed(
                [sys.executable, PEERS, "psnr", str(paths["area"]), str(paths[name])]
            )
            what = "`--dct-scaling`" if name == "scaled" else "no scaling, linear"
            self.note(
                f"{what}, PSNR to area on all pixels, the worst picture", goal, f"{psnr:.1f} dB", []
            )
        shutil.rmtree(root)

    def make_list(self) -> None:
        root = self.work / "tree"
        for folder in range(500):
            (root / f"class{folder:03d}").mkdir(parents=True, exist_ok=True)
            for number in range(400):
                (root / f"class{folder:03d}" / f"image_{number:05d}.jpg").touch()
        ours = [*IM2REC, "make-list", "--no-fsync", "-q", "outlist", str(root)]
        self.compare(
            "`make-list` of 200,000 files / a bare scandir walk",
            "0.67",
            lambda: self.seconds(ours),
            lambda: self.seconds([sys.executable, PEERS, "scandir_list", str(root), "outbare"]),
        )
        if self.mxnet:
            theirs = [self.mxnet, "-m", "mxnet.tools.im2rec", "--list", "--recursive"]
            self.compare(
                "`make-list` of 200,000 files / im2rec.py",
                "4",
                lambda: self.seconds(ours),
                lambda: self.seconds(
                    [*theirs, str(self.work / "outtheirs"), str(root)], stderr=subprocess.DEVNULL
                ),
            )
        shutil.rmtree(root)
        self.clean()

    def verify(self) -> None:
        small, whole = self.small_records(), self.photo_records()
        million = f"{self.records:,} records of 100 B"
        if self.mxnet:
            self.compare(
                f"`verify`, {million} / MXNet reads them in turn",
                "5",
                lambda: self.seconds([*IM2REC, "verify", "-q", small]),
                lambda: self.seconds([self.mxnet, PEERS, "sequential", small]),
            )
        self.compare(
            f"`inspect`, {million} / reading their heads",
            "1",
            lambda: self.seconds([*IM2REC, "inspect", "-q", small]),
            lambda: self.seconds([sys.executable, PEERS, "read_heads", small]),
        )
        self.compare(
            "`verify` of photographs / reading the file",
            "",
            lambda: self.seconds([*IM2REC, "verify", "-q", whole]),
            lambda: self.seconds([sys.executable, PEERS, "read_bytes", whole]),
        )
        limit = [sys.executable, PEERS, "all_cores", "limit_decode", self.photo_list(), self.photos]
        self.compare(
            f"`verify --decode` / {CPUS} bare loops that decode",
            "0.95",
            lambda: self.seconds([*IM2REC, "verify", "-q", "--decode", whole]),
            lambda: self.seconds(limit),
        )

    def recordio(self) -> None:
        if not self.mxnet:
            return
        small, whole = self.small_records(), self.photo_records()
        for what, rec, reads in (("100 B", small, "200000"), ("photographs", whole, "20000")):
            self.compare(
                f"`read_idx` at random, {what} / MXNet (loop)",
                "2",
                lambda rec=rec, n=reads: self.printed([sys.executable, PEERS, "at_random", rec, n]),  # type: ignore[misc]
                lambda rec=rec, n=reads: self.printed([self.mxnet, PEERS, "at_random", rec, n]),  # type: ignore[misc]
            )
        self.compare(
            f"opening an index of {self.records:,} lines / MXNet (loop)",
            "5",
            lambda: self.printed([sys.executable, PEERS, "open_index", small]),
            lambda: self.printed([self.mxnet, PEERS, "open_index", small]),
        )
        self.compare(
            "the same, and asking for its first key / MXNet (loop)",
            "",
            lambda: self.printed([sys.executable, PEERS, "open_index", small, "keys"]),
            lambda: self.printed([self.mxnet, PEERS, "open_index", small, "keys"]),
        )

    def memory(self) -> None:
        """The largest process of a run on many rows, and on few."""
        peaks, sizes = [], []
        photo = Path(self.photo_list()).read_text("utf-8").splitlines()[0].split("\t")[2]
        tiny = self.work / "tiny"
        tiny.mkdir(exist_ok=True)
        shutil.copy(Path(self.photos, photo), tiny / "a.jpg")
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import cv2; cv2.imwrite('a.jpg', cv2.resize(cv2.imread('a.jpg'), (32, 32)))",
            ],
            cwd=tiny,
            check=True,
        )
        for rows in (10_000, self.records):
            lines = [f"{number}\t{number % 1000}\ta.jpg\n" for number in range(rows)]
            (self.work / "outmany.lst").write_text("".join(lines), encoding="utf-8")
            sizes.append(rows)
            peaks.append(self.tree_peak([*IM2REC, *PACK, "--pass-through", "outmany", str(tiny)]))
        per_row = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
        self.note(
            f"memory of all processes, {sizes[1]:,} rows - {sizes[0]:,} rows, for each row",
            "at most 150 B",
            f"{per_row:.0f} B ({peaks[0] >> 20} MiB, {peaks[1] >> 20} MiB)",
            [],
        )
        self.clean()

    def tree_peak(self, command: list[str]) -> int:
        """The most memory that a command and its children hold at once (proportional set size)."""
        self.clean()
        process = subprocess.Popen(command, cwd=self.work, env=self.env)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(_memory, [process.pid, *_children(process.pid)])))
            time.sleep(0.05)
        if process.returncode:
            sys.exit(f"{command} failed")
        return peak


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    except OSError:
        return []
    return [int(each) for each in text.split()]


def _memory(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


BENCHES = (
    "help",
    "resize",
    "pass_through",
    "dct_scaling",
    "make_list",
    "verify",
    "recordio",
    "memory",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", required=True)
    parser.add_argument("--mxnet")
    parser.add_argument("--only", nargs="*", choices=BENCHES, default=BENCHES)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="im2rec-bench-") as folder:
        bench = Bench(arguments, Path(folder))
        for name in arguments.only:
            getattr(bench, name)()
    from importlib.metadata import version

    versions = " ".join(f"{name} {version(name)}" for name in ("opencv-python-headless", "numpy"))
    machine = f"{_processor()}, {CPUS} cores, Python {platform.python_version()}, {versions}"
    work = f"{arguments.images:,} images, {arguments.records:,} records"
    print(f"{machine}; {work}; medians of {arguments.pairs} pairs\n")
    print("| theirs / ours, more is better | goal | median (range) | our time |\n|---|---|---|---|")
    for row in bench.table:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
