// Package openai holds what the OpenAI HTTP API looks like on the wire: JSON
// bodies that are scanned and spliced instead of decoded and written anew,
// server-sent events, and the error object.
//
// Scan promises one pass over the body, linear in its length, with at most 2 MiB of its own, and that what it
// accepts has a single meaning: RFC 8259 syntax, valid UTF-8, no duplicate key
// at any depth, no lone surrogate, nothing after the object. Set and Delete
// keep every other byte of the body. Numbers are checked for syntax alone and
// never converted, so that 9007199254740993 and 1e400 reach the engine as the
// client wrote them.
//
// Not supported: bodies that are not a JSON object, encodings other than
// UTF-8, a byte order mark.
package openai
