// Package retrieval finds the few tools of a catalog that one turn of a
// conversation needs.
//
// An [Index] is compiled once from a list of tools and never changes; any
// number of goroutines may search it. A [Query] is the current stretch of the
// conversation as weighted texts, made from messages by [Index.Segment] or by
// hand. [Index.Search] ranks tools by lexical BM25F plus a prior for the
// servers in use, in time linear in the postings of the query's words plus the
// number of tools; equal scores are ordered by name, so that the same catalog
// and query give the same ranking on every machine and whatever the order of
// the catalog. [Select] cuts the ranking to what is worth showing: a number of
// tools, a budget in schema tokens, nothing that was shown before.
//
// The steps, in order of their files:
//
//	text.go     text to words: identifiers split, stop words dropped, plurals cut
//	schema.go   the words' sources in a parameter schema
//	index.go    tools to postings
//	segment.go  messages to a query
//	mention.go  tool names spelled out in a text
//	search.go   query to hits, and why
//	select.go   hits to the tools of this turn
//
// Not supported: phrases, spelling mistakes, synonyms, languages written
// without spaces other than Chinese and Japanese (whose characters are words),
// and removal of tools from a finished index.
package retrieval
