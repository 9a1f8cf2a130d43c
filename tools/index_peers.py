"""Measures hnswlib on exported vectors: index_peers.py DIR [EF...].

DIR holds vectors.f32 and queries.f32 as `sidecar bench index --export DIR` writes
them: number and dimension as u32, then float32, little endian. Prints a line an
ef: seconds to build on all cores, recall@10 against a scan, microseconds of a
search on one core.
"""

import sys
import time

import hnswlib
import numpy as np

NEAREST = 10


def read(path):
    with open(path, "rb") as f:
        n, dim = np.fromfile(f, "<u4", 2)
        return np.fromfile(f, "<f4", int(n) * int(dim)).reshape(n, dim)


def main():
    folder, efs = sys.argv[1], [int(x) for x in sys.argv[2:]] or [64, 128, 256]
    vectors, queries = read(f"{folder}/vectors.f32"), read(f"{folder}/queries.f32")
    truth = []
    for i in range(0, len(queries), 64):
        score = queries[i : i + 64] @ vectors.T
        truth.extend(np.argpartition(-score, NEAREST, axis=1)[:, :NEAREST])

    start = time.perf_counter()
    index = hnswlib.Index(space="ip", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), M=16, ef_construction=200, random_seed=1)
    index.add_items(vectors, np.arange(len(vectors)))
    build = time.perf_counter() - start
    index.set_num_threads(1)
    for ef in efs:
        index.set_ef(ef)
        took, hit = [], 0
        for q, want in zip(queries, truth):
            start = time.perf_counter()
            got, _ = index.knn_query(q, k=NEAREST)
            took.append(time.perf_counter() - start)
            hit += len(np.intersect1d(got[0], want))
        p50, p99 = (1e6 * np.quantile(took, q) for q in (0.5, 0.99))
        name = f"hnswlib 0.8.0, ef {ef}"
        print(f"{name:24} {len(vectors):8} {build:8.1f} s {hit / (NEAREST * len(queries)):10.4f} {p50:8.0f}/{p99:.0f} µs")


main()
