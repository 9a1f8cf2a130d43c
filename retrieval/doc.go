// Package retrieval finds the few tools of a catalog that one turn of a
// conversation needs.
//
// An [Index] is compiled once from a list of tools and never changes; any
// number of goroutines may search it. A [Query] is the current stretch of the
// conversation as weighted texts, made from messages by [Index.Segment] or by
// hand. [Index.Search] ranks tools by their words (BM25F), by the vectors of a
// [Space] if there is one, and by what the conversation called before; equal
// scores are ordered by name, and sums are exact, so that the same catalog and
// query give the same ranking on every machine and whatever the order of the
// catalog. It takes time linear in the postings of the query's words plus the
// number of tools times the dimensions; the latter falls away with a [Graph].
// [Index.Update] makes the index of a changed catalog from that of the old one.
// [Select] cuts the ranking to what is worth
// showing: a budget in schema tokens, nothing that was shown before, and nothing
// at all where a tool on view is what the turn asks for.
//
// The steps, in order of their files:
//
//	text.go     text to words and stems: identifiers split, stop words dropped
//	schema.go   the words' sources in a parameter schema
//	name.go     how names are written, and how much of one a query spells
//	index.go    tools to postings
//	dense.go    tools and queries to vectors
//	graph.go    vectors to their nearest
//	segment.go  messages to a query
//	clause.go   a message of several wishes to its clauses
//	mention.go  tool names spelled out in a text
//	chain.go    tools that feed others
//	search.go   query to hits, and why
//	select.go   hits to the tools of this turn
//	slim.go     schemas made shorter for the prompt
//
// Not supported: phrases, spelling mistakes, languages written without spaces
// other than Chinese and Japanese (whose characters are words).
package retrieval
