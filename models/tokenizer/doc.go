// Package tokenizer turns text into token ids and back, with the same ids as the
// vocabulary's reference: Hugging Face tokenizers for tokenizer.json files,
// tiktoken for rank files.
//
// Encoding takes time in proportion to the text, but for a logarithm in the
// length of a single piece, whatever the text: a megabyte of one letter costs a
// few times what a megabyte of prose costs.
//
// # Tour
//
// A text passes these steps in order; each has its file.
//
//	added.go    special and added tokens are found and set apart
//	nfc.go      what lies between them is normalised, if the vocabulary says so
//	pattern.go  and split into pieces: words, numbers, symbols, white space
//	            (class.go: by the character classes of the reference's Unicode)
//	table.go    a piece that is a token as a whole is found in a hash table
//	merge.go    any other is made of tokens by byte-pair encoding
//
// json.go and ranks.go read the two kinds of files, pack.go the embedded one;
// build.go makes the tables.
//
// # Bytes that aren't UTF-8
//
// A byte that isn't part of a valid UTF-8 sequence is a character of its own
// which is neither letter, number, mark nor white space, so it is split like a
// symbol, and it isn't touched by normalising. Its token is that of the single
// byte, or of a merge with its neighbours. Decode gives it back. The references
// take valid text only.
//
// # Not supported
//
// Models other than byte-level BPE (Unigram, WordPiece, SentencePiece's byte
// fallback), dropout, normalisers other than NFC, split patterns other than those
// of GPT-2, SmolLM, cl100k, o200k, Llama 3 and Qwen, add_prefix_space, and
// post-processors, which add tokens that the text doesn't spell (Llama's
// <|begin_of_text|>: write it in the text). Files that ask for one of these are
// refused with an *UnsupportedError, except for post-processors, which are
// ignored.
//
// Two details differ from the references. A token that is listed as added is
// never the result of merging, so EncodeOrdinary can't yield one even where a
// vocabulary lists it among its merges too. Bytes for which a vocabulary has no
// token at all (SmolLM2 lacks 21 of the 256: six control characters and bytes that
// no assigned character uses) are left out, as in Hugging Face tokenizers; then decoding doesn't
// give them back.
package tokenizer
