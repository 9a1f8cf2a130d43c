// Package lexical decides which JSON strings and numbers are in a set, byte by
// byte, in whatever spelling they come: "A" and "\u0041" are one string, 100
// and 1e2 one number.
//
// A set of strings is a Predicate: an ECMA-262 pattern, a format, a length, or
// a list of values. Strings runs any number of them side by side over one
// string and tells at its end which of them hold. Numbers does the same for
// bounds, multiples and single values.
//
// Both are determinised as they are used. States are kept by the machine that
// made them, up to Limits; what was once found out is read without a lock, so
// that a machine may serve many goroutines.
//
// The files are steps: charset holds sets of characters, parse reads a pattern,
// program prepares it, term takes its derivatives; predicate and format name
// sets, late, idn and regex decide what is no pattern; text runs predicates over
// characters, spelling reads characters from bytes, reach, near and run look
// ahead. number and numreach do all that for numbers.
//
// Not decided, and refused with the pattern's offset: backreferences, a
// lookahead inside a lookbehind, \p of a property that the unicode package has
// no table of.
package lexical
