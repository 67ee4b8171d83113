"""What is installed, held to its sources: `python3 .ci/manifests` checks, `--write` makes anew what is made.

Needs PyYAML. The checks need helm (HELM may name several, separated by commas), kubectl with kustomize, and for the flags the binary.
"""

import pathlib
import sys

sys.dont_write_bytecode = True

import check  # noqa: E402
import generate  # noqa: E402


def write() -> None:
    for path, text in generate.everything().items():
        file = pathlib.Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print("written:", path)
    check.write_golden()


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    elif sys.argv[1:] == []:
        sys.exit(check.all_of_it())
    else:
        sys.exit(__doc__)
