// Package grammar holds a model's tool calls to the schemas of the tools.
//
// Compile takes a tool's JSON Schema once. From it come the two things a
// request needs: Check, which judges whole arguments by the full schema in its
// own draft, and a grammar for the engine, which Tag puts into a structural
// tag so that the model can hardly write anything else. Stream follows
// argument bytes as they arrive and stops at the first that can't be JSON.
//
// For a decoder of our own there is the Automaton of a tool: what the grammar
// for the engine derives, decided byte by byte, and Matcher, which follows a
// text and gives the mask of the tokens of a Vocabulary that may come next.
// Apply puts a mask on logits.
//
// What Check accepts and what the engine writes are two languages. The second
// lies inside the first, in the spelling that models use: declared keys in
// declared order, little white space, numbers of at most 15 digits. Where a
// schema says more than the engine can keep, the grammar is wider and the tool
// is named in the Emission with the reasons; then Check is what catches a
// misfit. See narrow for each keyword.
//
// The way through the code: schema.go bounds a schema and resolves references,
// world.go closes it, compile.go and check.go make the judge; merge.go and
// narrow.go turn the schema into a lang, with spread.go and arrange.go for what
// is a choice, and lang.go takes out what has no finite value; pattern.go,
// digits.go and write.go draft
// rules of it, which package dialect puts into the notation of an engine, tag.go
// into a structural tag and emit.go into a text for other engines; rewrite.go
// makes a schema again. prove.go reads back and compares, known.go holds what is
// known of engines. stream.go and progress.go stand alone. From the same
// lang program.go makes an automaton with a stack, automaton.go runs it and
// place.go counts for it; vocabulary.go and slice.go lay out tokens, mask.go
// finds those that fit, matcher.go is one text.
//
// Around that: envelope.go words misfits for a model, undecided.go names what
// Check leaves open, default.go puts defaults into arguments; lint.go takes a
// described tool apart, rules.go holds what to look for in it, overlap.go what
// to look for among many.
//
// Not supported by narrow, and therefore left to Check: $dynamicRef, references
// by anchor or embedded $id, inner anchors and word boundaries in patterns,
// multipleOf in wide ranges, maps with distinct keys; and beyond the limits of
// spread.go and arrange.go, which write them as choices, uniqueItems, contains,
// not, if/then/else, dependentSchemas, overlapping oneOf and counts of members.
package grammar
