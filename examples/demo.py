"""`make demo`: a catalog text for 48 real cars by a real model, from Parquet to Parquet, with the price."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NIGHTMILL = Path(sys.executable).with_name("nightmill")
CARS = Path("examples/cars.parquet")  # below ROOT, as every command runs there
OUT = Path("out")

# Longer than a user's might be, so that it fills two blocks of the prefix cache (32 tokens each here): every row after
# the first reuses them, and the report has something to show.
SYSTEM = (
    "You write car descriptions for an online catalog. Write in the present tense, name the model, the year and the "
    "country or region it comes from, and do not make up numbers. Use plain words, no lists and no headlines. "
    "Never write more than one sentence."
)
PROMPT = "Describe the {{ Name }} ({{ Year }}, {{ Origin }}) in one sentence."

FAKE_WARNING = """
!!  THE FAKE ENGINE: no model runs. The texts below are made up from the prompt, and so are the speed and the   !!
!!  token counts. It shows what Nightmill looks like, nothing more.                                             !!
"""


def main() -> None:
    """Run every step as a user would, printing each command before it runs."""
    os.chdir(ROOT)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("cpu", "fake"), default="cpu")
    engine = parser.parse_args().engine
    model = "smollm2" if engine == "cpu" else "fake"
    began = time.monotonic()
    home = os.environ.setdefault("NIGHTMILL_HOME", str(ROOT / ".nightmill"))  # the commands below inherit it

    if engine == "fake":
        print(FAKE_WARNING)
    else:
        title("The model (made once, in about 20 seconds)")
        nightmill("models", "prepare", model)
    if not CARS.exists():
        title("The data: 406 cars")
        run(sys.executable, "examples/make_cars.py", str(CARS))

    title("The job")
    before = job_folders()
    where = ["--id", "id", "--limit", "48", "--output", f"{OUT}/"]
    what = ["--system", SYSTEM, "--prompt", PROMPT, "--max-tokens", "48"]
    nightmill("run", str(CARS), "--model", model, *where, *what)
    folder = max(job_folders() - before, key=lambda path: path.stat().st_mtime)

    title("A few rows")
    nightmill("results", folder.name, "--head", "5")
    title("What it cost")
    nightmill("ledger", "statement")
    print(f"\nThe Parquet lies in {folder}/ (any reader of Parquet takes the folder).")
    print(f"To go on from here: export NIGHTMILL_HOME={shlex.quote(home)}, then {shlex.quote(str(NIGHTMILL))} --help")
    print(f"All of it took {time.monotonic() - began:.0f} s.")
    if engine == "fake":
        print(FAKE_WARNING)


def job_folders() -> set[Path]:
    """`run --output out/` writes out/JOB/, so the new folder's name is the job's id."""
    return {path for path in OUT.glob("*") if path.is_dir()}


def title(text: str) -> None:
    print(f"\n── {text} " + "─" * max(0, 90 - len(text)), flush=True)


def nightmill(*arguments: str) -> None:
    print(f"$ nightmill {shlex.join(arguments)}", flush=True)
    run(str(NIGHTMILL), *arguments, shown=False)


def run(*command: str, shown: bool = True) -> None:
    if shown:
        print(f"$ {shlex.join(('python', *command[1:]))}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
