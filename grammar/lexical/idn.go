package lexical

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/bidi"
	"golang.org/x/text/unicode/norm"
)

// Host names by IDNA 2008: RFC 5890 (what a label is), 5891 (its rules), 5892
// (which characters), 5893 (text from right to left), 3492 (Punycode). Joining
// types, which say where U+200C may stand without a virama, are those of the
// blocks Arabic and Syriac.

// hostScan looks at labels that begin with xn-- alone; the rest of a host name
// is regular. Its state is "x" and a label that may be one, or "o".
func hostScan() *scan {
	return &scan{
		start: "x",
		step: func(state string, r rune) string {
			switch {
			case r == '.':
				if state != "o" && !hostLabelOK(state[1:]) {
					return ""
				}
				return "x"
			case state == "o":
				return state
			case len(state) > 63 || r >= utf8.RuneSelf:
				return ""
			}
			state += string(unicode.ToLower(r))
			if n := min(len(state), 5); state[1:n] != acePrefix[:n-1] {
				return "o"
			}
			return state
		},
		accept: func(state string) bool { return state == "o" || hostLabelOK(state[1:]) },
		told: func(state string) told {
			switch n := len(state) - 1; {
			case state == "o":
				return told{runes: []rune{'.'}}
			case n == 0:
				return told{runes: []rune{'.', 'X', 'x'}}
			case n == 1:
				return told{runes: []rune{'.', 'N', 'n'}}
			case n < len(acePrefix):
				return told{runes: []rune{'-', '.'}}
			}
			return told{all: true}
		},
	}
}

const acePrefix = "xn--"

func hostLabelOK(label string) bool {
	if !strings.HasPrefix(label, acePrefix) {
		return true
	}
	_, ok := decodeLabel(label)
	return ok
}

// idnScan keeps the label; before it stand how many bytes of its name came
// before as A-labels, whether some label goes from right to left, and whether
// some label breaks the rule for names that have such a label.
func idnScan() *scan {
	const most = 253
	finish := func(state string) (length int, rightLeft, broken byte, ok bool) {
		length, rightLeft, broken = int(state[0]), state[1], state[2]
		n, u, ok := idnLabelOf(state[3:])
		if !ok || length+n > most {
			return 0, 0, 0, false
		}
		if hasRightLeft(u) {
			rightLeft = 'y'
		}
		if !bidiOK(u) {
			broken = 'y'
		}
		return length + n, rightLeft, broken, rightLeft == 'n' || broken == 'n'
	}
	return &scan{
		start: "\x00nn",
		step: func(state string, r rune) string {
			switch r {
			case '.', 0x3002, 0xFF0E, 0xFF61:
				length, rightLeft, broken, ok := finish(state)
				if !ok || length+1 > most {
					return ""
				}
				return string([]byte{byte(length + 1), rightLeft, broken})
			}
			if state += string(r); len(state) > 3+4*63 {
				return ""
			}
			return state
		},
		accept: func(state string) bool {
			_, _, _, ok := finish(state)
			return ok
		},
	}
}

// idnLabelOf is the length of a label as A-label, and it as U-label.
func idnLabelOf(label string) (length int, u string, ok bool) {
	ascii := strings.IndexFunc(label, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
	switch {
	case ascii && strings.HasPrefix(strings.ToLower(label), acePrefix):
		u, ok := decodeLabel(label)
		return len(label), u, ok
	case ascii:
		ok := len(label) <= 63 && hyphensOK(label) && strings.IndexFunc(label, func(r rune) bool {
			return r != '-' && (r == '_' || !wordChars.has(r))
		}) < 0
		return len(label), label, ok
	}
	if !uLabelOK(label) {
		return 0, "", false
	}
	a := acePrefix + encodePunycode([]rune(label))
	return len(a), label, len(a) <= 63
}

// decodeLabel is the U-label of an A-label.
func decodeLabel(label string) (string, bool) {
	label = strings.ToLower(label)
	rs, ok := decodePunycode(label[len(acePrefix):])
	if !ok || len(label) > 63 {
		return "", false
	}
	u := string(rs)
	return u, strings.IndexFunc(u, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 &&
		acePrefix+encodePunycode(rs) == label && uLabelOK(u) && (!hasRightLeft(u) || bidiOK(u))
}

func hyphensOK(label string) bool {
	rs := []rune(label)
	return len(rs) > 0 && rs[0] != '-' && rs[len(rs)-1] != '-' && (len(rs) < 4 || rs[2] != '-' || rs[3] != '-')
}

func uLabelOK(label string) bool {
	if !hyphensOK(label) || !norm.NFC.IsNormalString(label) {
		return false
	}
	rs := []rune(label)
	if unicode.Is(unicode.M, rs[0]) {
		return false
	}
	for i, r := range rs {
		switch idnClass(r) {
		case disallowed:
			return false
		case contextual:
			if !contextOK(rs, i) {
				return false
			}
		}
	}
	return true
}

type idnKind uint8

const (
	disallowed idnKind = iota
	valid
	contextual
)

// idnClass is RFC 5892 section 3.
func idnClass(r rune) idnKind {
	switch r {
	case 0xDF, 0x3C2, 0x6FD, 0x6FE, 0xF0B, 0x3007:
		return valid
	case 0xB7, 0x375, 0x5F3, 0x5F4, 0x30FB, 0x200C, 0x200D:
		return contextual
	case 0x640, 0x7FA, 0x302E, 0x302F, 0x3031, 0x3032, 0x3033, 0x3034, 0x3035, 0x303B:
		return disallowed
	}
	switch {
	case 0x660 <= r && r <= 0x669, 0x6F0 <= r && r <= 0x6F9:
		return contextual
	case r == '-', '0' <= r && r <= '9', 'a' <= r && r <= 'z':
		return valid
	case r < utf8.RuneSelf,
		0x1100 <= r && r <= 0x11FF, 0xA960 <= r && r <= 0xA97F, 0xD7B0 <= r && r <= 0xD7FF, // old Hangul
		0x20D0 <= r && r <= 0x20FF, 0x1D100 <= r && r <= 0x1D24F, // marks and music
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.White_Space, unicode.Noncharacter_Code_Point):
		return disallowed
	}
	s := string(r)
	if norm.NFKC.String(cases.Fold().String(norm.NFKC.String(s))) != s {
		return disallowed
	}
	if unicode.In(r, unicode.Ll, unicode.Lu, unicode.Lo, unicode.Nd, unicode.Lm, unicode.Mn, unicode.Mc) {
		return valid
	}
	return disallowed
}

// contextOK is RFC 5892 appendix A.
func contextOK(rs []rune, i int) bool {
	at := func(k int) rune {
		if k < 0 || k >= len(rs) {
			return -1
		}
		return rs[k]
	}
	switch r := rs[i]; r {
	case 0x200C, 0x200D:
		if i > 0 && norm.NFD.PropertiesString(string(rs[i-1])).CCC() == 9 { // virama
			return true
		}
		return r == 0x200C && joins(rs, i)
	case 0xB7:
		return at(i-1) == 'l' && at(i+1) == 'l'
	case 0x375:
		return unicode.Is(unicode.Greek, at(i+1))
	case 0x5F3, 0x5F4:
		return unicode.Is(unicode.Hebrew, at(i-1))
	case 0x30FB:
		return slices.ContainsFunc(rs, func(r rune) bool { return unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Han) })
	default: // digits of one kind alone
		other := rune(0x6F0)
		if r >= 0x6F0 {
			other = 0x660
		}
		return !slices.ContainsFunc(rs, func(r rune) bool { return other <= r && r <= other+9 })
	}
}

// joins tells whether letters join across the character at i.
func joins(rs []rune, i int) bool {
	see := func(k, step int) (j joining) {
		for k += step; k >= 0 && k < len(rs); k += step {
			if j = joiningOf(rs[k]); j != transparent {
				return j
			}
		}
		return apart
	}
	before, after := see(i, -1), see(i, 1)
	return before == dual && (after == dual || after == right)
}

type joining uint8

const (
	apart       joining = iota
	right               // to the letter before it alone
	dual                // to both sides
	transparent         // not there, for joining
)

// rightJoining are the letters of Arabic and Syriac that join to the one
// before them alone.
var rightJoining = charset{
	0x622, 0x625, 0x627, 0x627, 0x629, 0x629, 0x62F, 0x632, 0x648, 0x648, 0x671, 0x673, 0x675, 0x677, 0x688, 0x699,
	0x6C0, 0x6C0, 0x6C3, 0x6CB, 0x6CD, 0x6CD, 0x6CF, 0x6CF, 0x6D2, 0x6D3, 0x6D5, 0x6D5, 0x6EE, 0x6EF,
	0x710, 0x710, 0x715, 0x719, 0x71E, 0x71E, 0x728, 0x728, 0x72A, 0x72A, 0x72C, 0x72C, 0x72F, 0x72F,
}

func joiningOf(r rune) joining {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return transparent
	case r == 0x621 || r == 0x674 || r == 0x6D5 || !unicode.IsLetter(r):
		return apart
	case rightJoining.has(r):
		return right
	case 0x620 <= r && r <= 0x6FF, 0x712 <= r && r <= 0x72F:
		return dual
	}
	return apart
}

func bidiClass(r rune) bidi.Class {
	p, _ := bidi.LookupRune(r)
	return p.Class()
}

func hasRightLeft(label string) bool {
	return strings.IndexFunc(label, func(r rune) bool {
		c := bidiClass(r)
		return c == bidi.R || c == bidi.AL || c == bidi.AN
	}) >= 0
}

// bidiOK is the rule of RFC 5893 section 2.
func bidiOK(label string) bool {
	rs := []rune(label)
	if len(rs) == 0 {
		return false
	}
	allowed, ends := []bidi.Class{bidi.L, bidi.EN, bidi.ES, bidi.CS, bidi.ET, bidi.ON, bidi.BN, bidi.NSM}, []bidi.Class{bidi.L, bidi.EN}
	switch bidiClass(rs[0]) {
	case bidi.L:
	case bidi.R, bidi.AL:
		allowed = []bidi.Class{bidi.R, bidi.AL, bidi.AN, bidi.EN, bidi.ES, bidi.CS, bidi.ET, bidi.ON, bidi.BN, bidi.NSM}
		ends = []bidi.Class{bidi.R, bidi.AL, bidi.EN, bidi.AN}
	default:
		return false
	}
	last := bidi.NSM
	digits := map[bidi.Class]bool{}
	for _, r := range rs {
		c := bidiClass(r)
		if !slices.Contains(allowed, c) {
			return false
		}
		if c != bidi.NSM {
			last = c
		}
		digits[c] = true
	}
	return slices.Contains(ends, last) && !(digits[bidi.EN] && digits[bidi.AN])
}

// Punycode, RFC 3492 sections 5 and 6.
const (
	punyBase, punyMin, punyMax   = 36, 1, 26
	punySkew, punyDamp, punyBias = 38, 700, 72
)

func punyAdapt(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for ; delta > (punyBase-punyMin)*punyMax/2; k += punyBase {
		delta /= punyBase - punyMin
	}
	return k + (punyBase-punyMin+1)*delta/(delta+punySkew)
}

func punyThreshold(k, bias int) int { return min(max(k-bias, punyMin), punyMax) }

func decodePunycode(s string) ([]rune, bool) {
	var rs []rune
	if at := strings.LastIndexByte(s, '-'); at > 0 {
		rs = []rune(s[:at])
		s = s[at+1:]
	}
	n, i, bias := 128, 0, punyBias
	for s != "" {
		old, weight := i, 1
		for k := punyBase; ; k += punyBase {
			if s == "" {
				return nil, false
			}
			d := 0
			switch c := s[0]; {
			case 'a' <= c && c <= 'z':
				d = int(c - 'a')
			case '0' <= c && c <= '9':
				d = int(c-'0') + 26
			default:
				return nil, false
			}
			s = s[1:]
			if i += d * weight; i > 1<<31 {
				return nil, false
			}
			t := punyThreshold(k, bias)
			if d < t {
				break
			}
			if weight *= punyBase - t; weight > 1<<31 {
				return nil, false
			}
		}
		points := len(rs) + 1
		bias = punyAdapt(i-old, points, old == 0)
		n += i / points
		i %= points
		if n > unicode.MaxRune || 0xD800 <= n && n < 0xE000 {
			return nil, false
		}
		rs = slices.Insert(rs, i, rune(n))
		i++
	}
	return rs, true
}

func encodePunycode(rs []rune) string {
	var out []byte
	for _, r := range rs {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
		}
	}
	basic := len(out)
	if basic > 0 {
		out = append(out, '-')
	}
	n, delta, bias, done := rune(128), 0, punyBias, basic
	for done < len(rs) {
		next := rune(unicode.MaxRune)
		for _, r := range rs {
			if r >= n && r < next {
				next = r
			}
		}
		delta += int(next-n) * (done + 1)
		n = next
		for _, r := range rs {
			if r < n {
				delta++
			}
			if r != n {
				continue
			}
			q := delta
			for k := punyBase; ; k += punyBase {
				t := punyThreshold(k, bias)
				if q < t {
					break
				}
				out = append(out, punyDigit(t+(q-t)%(punyBase-t)))
				q = (q - t) / (punyBase - t)
			}
			out = append(out, punyDigit(q))
			bias = punyAdapt(delta, done+1, done == basic)
			delta = 0
			done++
		}
		delta++
		n++
	}
	return string(out)
}

func punyDigit(d int) byte {
	if d < 26 {
		return 'a' + byte(d)
	}
	return '0' + byte(d-26)
}
