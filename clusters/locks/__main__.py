"""`python -m clusters.locks VERSION`: write the lock of that version of Kafka to standard output."""

import sys

from clusters.jars import resolved_lock
from harness.errors import ProzessError

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m clusters.locks VERSION > clusters/locks/kafka-VERSION.lock")
    try:
        sys.stdout.write(resolved_lock(sys.argv[1], progress=lambda text: print(text, file=sys.stderr)))  # noqa: T201
    except ProzessError as error:
        sys.exit(str(error))
