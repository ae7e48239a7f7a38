"""What the four programs of docs/quickstart.md have left in the server, whose port is PORT."""

import os

import redis

EXPECTED = {
    "user:1": ("Python", {"name": "ann", "age": "30"}),
    "user:2": ("JavaScript", {"name": "bob", "age": "31"}),
    "user:3": ("Go", {"name": "cyd", "age": "32"}),
    "user:4": ("Java", {"name": "dee", "age": "33"}),
}

server = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
for key, (language, expected) in EXPECTED.items():
    found = server.hgetall(key)
    assert found == expected, (language, key, found)
    print("ok", language)
