package prefix

import (
	"regexp"
	"strings"
	"unicode"
)

// A detector finds values that change from one request to the next by themselves.
type detector struct {
	kind    Kind
	pattern *regexp.Regexp
	// accept rules a match out that is none; nil takes all.
	accept func(match string) bool
}

const (
	months   = `(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)`
	weekdays = `(?:Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:rs(?:day)?)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)`
	clock    = `\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\.?)?(?:\s?(?:Z|UTC|GMT|[A-Z]{2,4}T)\b)?(?:\s?[+-]\d{2}:?\d{2}\b)?`
)

// The detectors in the order in which they are asked. A date comes before a hash,
// since 20261130T174500Z is one, and both before a number.
var detectors = []detector{
	{Hash, regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), nil},
	{Date, regexp.MustCompile(`\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ]` + clock + `)?` + // 2026-11-30T17:45:00Z
		`|\b\d{8}T\d{4,6}Z?\b` + // 20261130T174500Z
		`|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b(?:,? ` + clock + `)?` + // 30.11.2026, 11/30/26
		`|(?:\b` + weekdays + `,? )?\b` + months + `\.? \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?(?:,?(?: at)? ` + clock + `)?(?: \d{4})?\b` + // Mon Nov 30 17:45:00 2026
		`|(?:\b` + weekdays + `,? )?\b\d{1,2}(?:st|nd|rd|th)?\.? ` + months + `\.?(?:,? \d{4})?(?:,?(?: at)? ` + clock + `)?\b` + // Mon, 30 Nov 2026 17:45:00 GMT
		`|\b` + weekdays + `\b` +
		`|\b` + clock + // 17:45
		`|\b1[0-9]{9}(?:[0-9]{3}|[0-9]{6}|[0-9]{9})?(?:\.\d+)?\b`), nil}, // seconds since 1970, or finer
	{Hash, regexp.MustCompile(`[0-9A-Za-z_\-+/=]{8,}`), random},
	{Counter, regexp.MustCompile(`[-+]?\d[\d,._]*%?`), nil},
}

// random says whether a word looks made by chance: hexadecimal with letters and
// digits, or 12 characters and more that change between letters and digits often.
func random(word string) bool {
	letters, digits, hex, turns := 0, 0, true, 0
	last := rune(0)
	for _, c := range word {
		class := rune(0)
		switch {
		case c >= '0' && c <= '9':
			digits++
			class = 1
		case unicode.IsLetter(c):
			letters++
			class = 2
			hex = hex && (c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F')
		default:
			hex = hex && c == '-'
		}
		if class != last && last != 0 && class != 0 {
			turns++
		}
		if class != 0 {
			last = class
		}
	}
	return letters > 0 && digits > 0 && (hex || letters+digits >= 12 && turns >= 3)
}

// classify names what stands where two texts part, "" for none of what it knows:
// the value that a detector finds there in both, or white space alone.
func classify(before, after string) Kind {
	n := commonPrefix(before, after)
	aStart, aEnd := lineAround(before, n)
	bStart, bEnd := lineAround(after, n)
	a, b := before[aStart:aEnd], after[bStart:bEnd]
	if unspaced(a) == unspaced(b) || unspaced(before) == unspaced(after) {
		return Whitespace
	}
	for _, d := range detectors {
		if d.covers(a, n-aStart) && d.covers(b, n-bStart) {
			return d.kind
		}
	}
	return ""
}

func unspaced(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// covers says whether the detector finds a value in line that byte n is part of,
// or that it ends.
func (d *detector) covers(line string, n int) bool {
	for _, m := range d.pattern.FindAllStringIndex(line, -1) {
		if m[0] <= n && n <= m[1] && (d.accept == nil || d.accept(line[m[0]:m[1]])) {
			return true
		}
	}
	return false
}
