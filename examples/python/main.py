"""Reads and writes rows through a sidecar with redis-py, as any application written in Python would."""

import json
import os
import time

import redis


def repeat(command, *args):
    """Try again, for a few seconds at most, what was refused for now: nothing was written then."""
    wait = 0.02
    while True:
        try:
            return command(*args)
        except redis.ResponseError as error:
            # redis-py makes an error of its own of TRYAGAIN and leaves the word out.
            refused = isinstance(error, redis.exceptions.TryAgainError) or str(error).startswith("OVERLOADED ")
            if wait > 2 or not refused:
                raise
        time.sleep(wait)
        wait *= 2


def main():
    host, _, port = os.environ.get("RINGSIDE", "127.0.0.1:16001").partition(":")
    # Nothing else: the sidecar is one Redis server.
    client = redis.Redis(host=host, port=int(port), decode_responses=True)

    user = json.loads(repeat(client.get, "user:1003"))
    print(f"user:1003 is {user['name']}, id {user['id']}")

    # An upsert of the columns given; the others stay. When it returns, no sidecar reads the older row any more.
    repeat(client.set, "user:1003", json.dumps({"name": "Margaret", "visits": 41}))
    # Counted up on the shard. Not repeated blindly: after some errors nobody knows whether it was done.
    visits = client.hincrby("user:1003", "visits", 1)
    print(f"now she is {client.hget('user:1003', 'name')}, with {visits} visits")

    # Plain keys go to the cache servers, with their lives.
    client.set("session:ghi", "1003", ex=60)
    session, missing = client.mget("session:ghi", "user:999999999")
    print(f"MGET: session {session}, and {missing} for a row that does not exist")

    # What is wrong with a request, the error says; repeating it would not help.
    try:
        client.set("user:1003", '{"shoe_size":38}')
    except redis.ResponseError as error:
        print(f"an error: {error}")


if __name__ == "__main__":
    main()
