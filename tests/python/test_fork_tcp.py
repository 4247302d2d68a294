"""The same over TCP, where a thread of the library makes progress."""
# needs multiprocessing; ranks 2

import test_fork

if __name__ == "__main__":
    test_fork.main("tcp")
