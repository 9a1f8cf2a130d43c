// Package embedding turns a text into a vector by a table of token vectors:
// texts of like meaning get vectors of a large inner product, though they share
// no word.
//
// A text is split into WordPiece tokens, the vectors of the tokens are added,
// and the sum is made one long. Nothing else is computed: no attention, no word
// order. A text of a dozen tokens takes some microseconds.
//
//	wordpiece.go  text to tokens, as BERT's uncased vocabulary has them
//	table.go      the file of vectors, and the sum
//	train.py      how the table was made
//
// The shipped table has 30,522 tokens of 256 dimensions. It was distilled from
// all-MiniLM-L6-v2 by train.py; CREDITS.md says from which texts.
//
// Not supported: languages that the vocabulary spells letter by letter (it was
// made for English) get vectors, but poor ones.
package embedding
