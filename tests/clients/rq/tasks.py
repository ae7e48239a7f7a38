"""The jobs that the workers of check.py run."""


def double(n):
    return 2 * n


def add(path, text):
    with open(path, "a") as file:
        file.write(text + "\n")


def broken():
    raise ValueError("no way")


def flaky(path):
    add(path, "try")
    if len(open(path).read().split()) < 3:
        raise ValueError("again")
    return "done"
