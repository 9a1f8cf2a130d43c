// Package usage remembers which tools were called for which queries, so that a
// like query finds them again whatever words it uses.
//
// A [Memory] is one tenant's. It learns [Event]s, answers [retrieval.Query] as
// its Memory, and is bounded by bytes: what was not seen for longest goes first.
// What it answers depends on what it holds, not on the order in which that came.
// It keeps no text of a query, but its weighty words and its vector.
//
// It is cautious. Only queries much alike speak, a query repeated word for word
// counts once, and a tool that was never called keeps its score: see
// [retrieval.Recollection.Doubt].
//
// The package does no I/O and reads no clock.
//
//	event.go   what is learned, and its form as JSON
//	memory.go  what is held
//	recall.go  what it says to a query
package usage
