// Package store keeps what must outlive a request: the ledger of conversations, in
// the memory of this process or in files that survive it; and beside it
// the usage memories of tenants.
//
// Both stores are bounded by bytes, least recently used first out, and by age. An
// entry may be gone at any time, which costs prefill; one that is found is the one
// that was put. What was deleted stays deleted, on disk too.
//
//	memory.go   Memory
//	file.go     File: Get, Put, Delete, and the order in which entries leave
//	segment.go  the files of File: their bytes, and how they are read back
//	index.go    where each entry of File stands, and when it was used
//	seal.go     encryption at rest
//	usage.go    Usage: what each tenant's calls taught
//
// [storetest] holds what any Ledger must do. A store over a network has the same
// methods: it answers a failed read as an entry that is gone, and a failed write by
// keeping nothing.
package store

import "github.com/toolsidecar/sidecar/prefix"

// A Ledger is a prefix.Ledger with what its operator needs. It is safe for
// concurrent use.
type Ledger interface {
	prefix.Ledger
	// Delete removes all entries of a conversation for good, and says how many.
	// After an error some may be left.
	Delete(prefix.Name) (entries int, err error)
	// Stats reports entries held, their bytes, and how many were evicted for want
	// of room since the start.
	Stats() (entries, bytes, evicted int)
	// Close lets go of what the ledger holds open; it is empty from then on.
	Close() error
}
