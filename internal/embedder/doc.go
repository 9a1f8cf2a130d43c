// Package embedder gets vectors of texts from a server that speaks the
// embeddings interface of the OpenAI API.
//
// A text is asked for once: vectors are kept in memory and, with a folder, on
// disk, under the hash of what made them (server, model) and of the text. Texts
// go out in batches; a request that the server refuses for the time being is
// repeated with growing pauses until the caller's context ends. What is known
// when it ends is returned, so that the caller can go on without the rest.
//
//	client.go  requests, batches, repeats
//	cache.go   the file of vectors
package embedder
