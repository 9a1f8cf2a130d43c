// Package accept decides exactly which JSON texts a JSON Schema accepts, byte
// by byte: any order of keys, any spelling of strings and numbers, any white
// space. An Automaton says after every byte whether the text so far can still
// be completed, which is what a mask of tokens needs; Check judges a whole text
// and says where it stopped fitting; a Follower does so as the text comes.
//
// A schema becomes a formula over few kinds of atoms, hash-consed (build.go,
// expr.go). What an open object or array must still get is such a formula as
// well: each member or item turns it into what is left of it (derive.go).
// Alternatives stay alternatives until they are decided, so that not, oneOf, if
// and the unevaluated keywords need nothing of their own. What a value is asked
// is a goal, which must come true, and questions, whose answers its parent
// wants. step.go reads bytes, automaton.go keeps the states, live.go leaves out
// those that can't be completed. Strings and numbers are package lexical's.
//
// The drafts are 04, 06, 07, 2019-09, 2020-12 and OpenAPI 3.1's, each by its own
// rules; draft.go has the table of keywords, load.go finds what references mean.
//
// As in encoding/json half a surrogate pair in an escape is U+FFFD; bytes that
// aren't UTF-8 are refused. A key may stand in an object once: Check and a
// Follower see to that, while states know it only of keys that the schema names.
// 1.0 is an integer in every draft.
//
// Refused by name: schemas that are malformed, that refer to themselves without
// going into the value, or to documents that aren't given, metaschemas that
// require unknown vocabularies, drafts before 04, and patterns that lexical
// can't decide.
package accept
