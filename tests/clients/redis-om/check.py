"""RedisOM for Python: hashes and JSON documents, without what needs a search index."""

import datetime
import os
import time
from typing import Dict, List, Optional

import redis

PORT = os.environ["PORT"]
os.environ["REDIS_OM_URL"] = f"redis://127.0.0.1:{PORT}"

from redis_om import EmbeddedJsonModel, Field, HashModel, JsonModel, NotFoundError, get_redis_connection, has_redis_json


def check(name, given, expected):
    assert given == expected, f"{name}: {given!r} is not {expected!r}"
    print(f"ok redis-om {name}", flush=True)


connection = get_redis_connection(url=os.environ["REDIS_OM_URL"], decode_responses=True)
plain = redis.Redis(port=int(PORT), decode_responses=True)


class Person(HashModel, index=True):
    name: str
    born: datetime.date
    age: int = Field(ge=0)
    note: Optional[str] = None

    class Meta:
        database = connection
        global_key_prefix = "om"


class Address(EmbeddedJsonModel):
    city: str
    zip: str


class Member(JsonModel, index=True):
    name: str
    scores: List[float] = []
    address: Optional[Address] = None
    options: Dict[str, int] = {}

    class Meta:
        database = connection
        global_key_prefix = "om"


def keys():
    return sorted(plain.scan_iter("om:*"))


for key in keys():
    plain.delete(key)
check("finds JSON", has_redis_json(connection), True)

ann = Person(name="Ann", born=datetime.date(1990, 5, 1), age=31)
ann.save()
check("a hash comes back", Person.get(ann.pk), ann)
check("a hash is one key", [plain.type(key) for key in keys()], ["hash"])
ann.update(age=32, note="é")
check("an update", (Person.get(ann.pk).age, Person.get(ann.pk).note), (32, "é"))
check("expiry", (ann.expire(100), 90 < plain.ttl(ann.key()) <= 100), (None, True))
check("delete", Person.delete(ann.pk), 1)
try:
    Person.get(ann.pk)
    raise AssertionError("a deleted hash is found")
except NotFoundError:
    check("a deleted one is not found", keys(), [])

bob = Member(name="Bob", scores=[1.5, 2, 1e20], address=Address(city="Oslo", zip="0150"), options={"a": 1, "b": -2})
bob.save()
check("a document comes back", Member.get(bob.pk), bob)
check("a document is one key", [plain.type(key) for key in keys()], ["ReJSON-RL"])
check("its text", plain.json().get(bob.key(), "$.address.city"), ["Oslo"])
bob.address.city = "Bergen"
bob.update(name="Robert")
check("an update of a part", (Member.get(bob.pk).name, Member.get(bob.pk).address.city), ("Robert", "Bergen"))
many = [Member(name=f"m{at}", scores=[at]) for at in range(50)]
Member.add(many)
check("many in a pipeline", [Member.get(one.pk).scores for one in many], [[at] for at in range(50)])
check("all keys", len(list(Member.all_pks())), 51)
pipeline = connection.pipeline()
bob.name = "In a pipeline"
bob.save(pipeline=pipeline)
check("nothing before EXEC", Member.get(bob.pk).name, "Robert")
pipeline.execute()
check("all after it", Member.get(bob.pk).name, "In a pipeline")
bob.expire(1)
end = time.monotonic() + 15
while plain.exists(bob.key()):
    assert time.monotonic() < end, "an expired document stays"
    time.sleep(0.05)
check("an expired document goes", plain.type(bob.key()), "none")
check("delete many", Member.delete_many(many), 50)
