// Package proxy takes one request of the OpenAI API from a client to an engine
// and the reply back. It owns the clocks, the goroutines and the failure
// policy; what it calls (scanning, stages) has none of them.
//
// The core is Proxy.Serve, a function of a context, a Request and a Sink. Two
// thin adapters feed it: Server on fiber, for production, and Handler on
// net/http, against which the first is tested. A request goes through
//
//	server.go, handler.go   adapter: bytes of HTTP to Request, Sink back
//	hangup_*.go             does the client still listen?
//	proxy.go                routes, limits, drain
//	chat.go                 body checks; the staged path or the transparent one
//	fields.go               fields that steer the engine and are refused
//	engine.go               the call of the engine, its timeouts and errors
//	client.go               connections to the engine
//	relay.go                the reply back, event by event
//	exchange.go             what is known of one request while it runs
//
// A chat completion with tools takes the staged path:
//
//	request.go              the request as the stages read it
//	knowledge.go            what is known of the engine
//	stages.go               plan: the stages in their order
//	access.go               who may use which tools
//	front.go                the front block
//	retrieve.go             observations cut, tools added, and why
//	embed.go                vectors from an embedder, in the background
//	usage.go                what was called for queries like this one
//	constrain.go            the constraint
//	tokenin.go              the prompt as token ids, and what guards it
//	splice.go               the body for the engine, and what it should find cached
//	turn.go                 sent, in rounds, and answered
//	generation.go           the engine's text to OpenAI deltas, each checked
//	search.go               the model's own searches
//	record.go, recordheader.go  what was decided, for people and headers
//	observe.go              the same in shadow
//	autopsy.go              what a turn lost of the cache, where and by whom
//
// Before the stages, where their options say so:
//
//	salt.go                 the engine's prefix cache parted by tenant
//	volatile.go             lines of the system text that change
//
// And beside the requests: prefixdiff.go compares two of them, forget.go deletes a
// conversation.
//
// What is promised. A transparent reply has the engine's status, content type
// and body bytes. A stream is forwarded in whole events, byte for byte; when
// the engine fails in the middle, the client gets one more well-formed event,
// {"error":{…}}, and the stream ends without [DONE]. A reply that is no stream
// is sent whole or not at all. When the client leaves, in the silence of a
// prefill too, the engine's connection is closed at once. Memory per request
// is bounded by Config.
//
// Not supported: HTTP/2 and TLS towards clients, request bodies in a content
// encoding, proxies from the environment, redirects by the engine.
package proxy
