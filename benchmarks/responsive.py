"""Measures for how long a thread that sleeps 5 ms at a time is stopped while another compresses: `responsive.py [BYTES [LEVEL]]`."""

import random
import sys
import threading
import time

from ellzero.archive._compress import compress


def longest_stop(size: int, level: int) -> tuple[float, float]:
    """Compresses words in this thread; returns the longest stop of the other in milliseconds, and the seconds that it took."""
    source = random.Random(1)
    words = [bytes(source.choices(b"etaoinshrdlu", k=source.randint(2, 9))) for _ in range(3000)]
    data = b" ".join(source.choices(words, k=size // 6 + 1))[:size]
    compress(data[:1000], level=level)  # compiles or loads what is compiled
    stops: list[float] = []
    done = threading.Event()

    def tick() -> None:
        before = time.monotonic()
        while not done.is_set():
            time.sleep(0.005)
            stops.append(time.monotonic() - before - 0.005)
            before = time.monotonic()

    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.monotonic()
    compress(data, level=level)
    seconds = time.monotonic() - started
    done.set()
    ticker.join()
    return 1000 * max(stops), seconds


if __name__ == "__main__":
    size, level = (int(word) for word in [*sys.argv[1:], *("1000000", "9")[len(sys.argv) - 1 :]])
    stop, seconds = longest_stop(size, level)
    print(f"{size} bytes at -{level} in {seconds:.1f} s; the longest stop of another thread: {stop:.1f} ms")
