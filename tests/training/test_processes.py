"""How processes find each other."""

import time
from concurrent.futures import ThreadPoolExecutor

from torch._C._distributed_c10d import HashStore

from regard.training.processes import agree_on_name


def test_processes_agree_on_a_name_that_no_earlier_attempt_had() -> None:
    store = HashStore()
    names = []
    for _ in range(3):  # each finds what those before have left
        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(agree_on_name, store, 0, 3)
            third = pool.submit(agree_on_name, store, 2, 3)
            time.sleep(0.1)  # the second finds the others waiting
            second = pool.submit(agree_on_name, store, 1, 3)
            found = {process.result(timeout=30) for process in (first, second, third)}
        names.append(found)
    assert all(len(found) == 1 for found in names)
    assert len(set.union(*names)) == 3
