// Package prefix owns what was sent to the engine before and what may be
// appended to it.
//
// An engine reuses KV cache only for a prompt that begins with the same tokens
// as an earlier one. Clients, though, speak in whole message lists: they renumber
// call ids, re-dump arguments, drop reasoning, and know nothing of the tools and
// shortened observations which the sidecar added. This package therefore reads a
// conversation as a fold over its messages: a chain of keys, one per message, and
// under each key the decision that was taken there. A decision is taken once,
// recorded, and replayed on every later turn, so the layout of turn n+1 begins
// with the layout of turn n.
//
// Keys are made of meaning (role, text, calls as name and canonical arguments,
// results by call), never of ids, key order or nulls. An edited message gives
// other keys from there on, which is a branch. A message whose key is not
// recorded is laid out as the client's own bytes.
//
// The package does no I/O, reads no clock and starts no goroutine. Losing an
// entry costs prefill, never another answer.
package prefix
