r"""Fuzzes every reader for long, guided by coverage (atheris, from the extra `fuzz`), and prints
how many inputs each was given:

    pip install '.[fuzz]' && python tests/fuzz/run.py --minutes 10

The minutes are shared among the readers; `--reader NAME` gives them all to one. An input that
breaks a rule of readers.py is kept in the folder FINDINGS (default: fuzz-findings) and makes the
exit code 1; `--replay FILE --reader NAME` runs it alone. The same rules are held, for a fixed
number of inputs, by tests/test_fuzz.py.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers of im2rec.")
    parser.add_argument("--minutes", type=float, default=10, help="in all (default 10)")
    parser.add_argument("--reader", help="this one only")
    parser.add_argument("--findings", default="fuzz-findings", help="folder for what breaks a rule")
    parser.add_argument("--replay", metavar="FILE", help="give this input to --reader")
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        fuzz(arguments.reader, arguments.child)
    import readers

    if arguments.replay:
        readers.READERS[arguments.reader](Path(arguments.replay).read_bytes())
        readers.remove_folder()
        return 0
    names = [arguments.reader] if arguments.reader else list(readers.READERS)
    seconds = 60 * arguments.minutes / len(names)
    return max(run(name, seconds, arguments.findings) for name in names)


def run(reader: str, seconds: float, findings: str) -> int:
    """Fuzzes one reader in a process of its own, anew after each finding; 1 if there was one."""
    import time

    import readers

    folder = Path(findings)
    folder.mkdir(exist_ok=True)
    inputs = found = 0
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(readers.seeds(reader)):
            Path(corpus, f"seed{number}").write_bytes(seed)
        while found < 5 and (left := end - time.monotonic()) > 1:
            command = [sys.executable, __file__, "--reader", reader, "--child", corpus]
            options = [f"max_total_time={int(left)}", f"artifact_prefix={folder}/{reader}-"]
            done = subprocess.run(
                [*command, *options, "timeout=20", "rss_limit_mb=1500", "max_len=4096"],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            runs = re.findall(r"^#(\d+)|Done (\d+) runs|executed_units: +(\d+)", done.stderr, re.M)
            inputs += max((int(next(filter(None, each))) for each in runs), default=0)
            if done.returncode == 0:
                break
            found += 1
            told = done.stdout.strip() or done.stderr  # a Python exception, or what libFuzzer says
            print(f"{reader}: {told[-2000:]}", flush=True)
    print(f"{reader}: {inputs} inputs, {found} findings", flush=True)
    return int(found > 0)


def fuzz(reader: str, arguments: list[str]) -> None:
    """In a process of its own: never returns."""
    import atheris

    with atheris.instrument_imports(include=["im2rec"]):
        import readers
    corpus, *options = arguments
    flags = [f"-{option}" for option in options]
    atheris.Setup([sys.argv[0], *flags, "-print_final_stats=1", corpus], readers.READERS[reader])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
