"""Writes the input of the S4 evaluation: words of 100 characters, a quarter of them divisible by three.

python words.py DIRECTORY [--count 200000] [--seed 1] [--files 1]
"""

import argparse
import os
import random
from collections.abc import Iterator
from pathlib import Path

LENGTH = 100
NOT_NUMBERS = 0.01


def words(count: int, seed: int) -> Iterator[str]:
    """Words, of which exactly count // 4 are numbers divisible by three and one in a hundred is no number."""
    random_ = random.Random(seed)
    kinds = ["three"] * (count // 4) + ["word"] * int(count * NOT_NUMBERS)
    kinds += ["number"] * (count - len(kinds))
    random_.shuffle(kinds)
    for kind in kinds:
        digits = [random_.randrange(1, 10), *(random_.randrange(10) for _ in range(LENGTH - 1))]
        excess = sum(digits) % 3
        if kind == "three":
            digits[-1] += -excess if digits[-1] >= excess else 3 - excess
        elif excess == 0:
            digits[-1] += 1 if digits[-1] < 9 else -1
        text = "".join(map(str, digits))
        yield text if kind != "word" else text[:50] + "x" + text[51:]


def write(directory: Path, count: int, seed: int, files: int) -> None:
    """Write the words to files, each moved in whole, so that a running source never sees half of one."""
    directory.mkdir(parents=True, exist_ok=True)
    every = list(words(count, seed))
    for number in range(files):
        part = every[number * count // files : (number + 1) * count // files]
        draft = directory / f".words-{number:04d}.draft"
        draft.write_text("\n".join(part) + "\n")
        os.replace(draft, directory / f"words-{number:04d}.txt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=1)
    options = parser.parse_args()
    if not (options.directory / "words-0000.txt").exists():
        write(options.directory, options.count, options.seed, options.files)
