// Package hnsw finds the nearest of many vectors without looking at all of
// them: a hierarchical navigable small world graph after Malkov and Yashunin
// (arXiv 1603.09320), with their diversity heuristic for choosing neighbours.
//
// What it promises:
//
//   - The same operations in the same order give the same graph and the same
//     answers, on any number of cores: levels come from a hash of seed and key,
//     AddBatch searches in parallel and links in order.
//   - Searches run while vectors are added, replaced and removed, without locks:
//     what they read is published by atomic pointers and never changed after.
//     Writers exclude each other.
//   - A removed vector is never returned. Its node stays as a bridge until as
//     many are dead as alive; then the graph is built anew.
//   - A filter costs no recall: where few vectors pass it, they are compared one
//     by one.
//
// Similarity is the inner product; with Cosine vectors are scaled to length 1
// as they come. NaN and infinities are refused.
//
// The files: graph.go nodes and how they are published, search.go reading,
// build.go writing, snapshot.go the form on disk. Exact is the scan that judges
// all of it, and serves small sets better.
package hnsw
