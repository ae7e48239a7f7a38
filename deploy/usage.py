"""What scripts of Python do with their arguments, as deploy/usage.sh does for those of bash."""
import os, sys


def arguments(text, least, most):
    """Returns the words of the command line, of which there are `least` to `most`. `--help` prints `text`, the script's own
    description; an option is refused, since none of these scripts has one."""
    words = sys.argv[1:]
    name = os.path.basename(sys.argv[0])
    if "-h" in words or "--help" in words:
        print(text.strip())
        sys.exit(0)
    wrong = None
    for word in words:
        if word.startswith("-"):
            wrong = f"there is no option {word}"
    if not wrong and not least <= len(words) <= most:
        wrong = f"it takes {least if least == most else f'{least} to {most}'} words, not {len(words)}"
    if wrong:
        print(f"{name}: {wrong}; see {sys.argv[0]} --help", file=sys.stderr)
        sys.exit(2)
    return words
