package lexical

import (
	"cmp"
	"slices"
	"sync"
	"unicode"
)

// A charset is a set of code points: pairs lo, hi, inclusive, sorted, with a
// gap between any two.
type charset []rune

var (
	anyChar    = charset{0, unicode.MaxRune}
	digitChars = charset{'0', '9'}
	wordChars  = charset{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}
	spaceChars = charset{
		'\t', '\r', ' ', ' ', 0xA0, 0xA0, 0x1680, 0x1680, 0x2000, 0x200A,
		0x2028, 0x2029, 0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000, 0xFEFF, 0xFEFF,
	}
	// dotChars is all but the line terminators of ECMA-262.
	dotChars = charset{'\n', '\n', '\r', '\r', 0x2028, 0x2029}.negate()
)

func (s charset) has(r rune) bool {
	lo, hi := 0, len(s)/2
	for lo < hi {
		m := (lo + hi) / 2
		switch {
		case r < s[2*m]:
			hi = m
		case r > s[2*m+1]:
			lo = m + 1
		default:
			return true
		}
	}
	return false
}

// normal sorts pairs and joins those that touch. It may reuse s.
func (s charset) normal() charset {
	sorted := true
	for i := 2; i < len(s) && sorted; i += 2 {
		sorted = s[i] > s[i-1]+1
	}
	if sorted {
		return s
	}
	type pair struct{ lo, hi rune }
	ps := make([]pair, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		ps = append(ps, pair{s[i], s[i+1]})
	}
	slices.SortFunc(ps, func(a, b pair) int { return cmp.Compare(a.lo, b.lo) })
	out := s[:0]
	for _, p := range ps {
		if n := len(out); n > 0 && p.lo <= out[n-1]+1 {
			out[n-1] = max(out[n-1], p.hi)
		} else {
			out = append(out, p.lo, p.hi)
		}
	}
	return out
}

func (s charset) union(t charset) charset {
	return append(append(make(charset, 0, len(s)+len(t)), s...), t...).normal()
}

func (s charset) negate() charset {
	var out charset
	from := rune(0)
	for i := 0; i < len(s); i += 2 {
		if s[i] > from {
			out = append(out, from, s[i]-1)
		}
		from = s[i+1] + 1
	}
	if from <= unicode.MaxRune {
		out = append(out, from, unicode.MaxRune)
	}
	return out
}

func (s charset) minus(t charset) charset { return s.negate().union(t).negate() }

func tableSet(t *unicode.RangeTable) charset {
	var out charset
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, lo, hi)
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, r, r)
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return out.normal()
}

var propertySets sync.Map // of name and value: charset

// propertySet is the set of \p{name} or \p{name=value}; false if the unicode
// package has no table that says it.
func propertySet(name, value string) (charset, bool) {
	key := [2]string{name, value}
	if s, ok := propertySets.Load(key); ok {
		return s.(charset), true
	}
	s, ok := findProperty(name, value)
	if ok {
		propertySets.Store(key, s)
	}
	return s, ok
}

func findProperty(name, value string) (charset, bool) {
	switch name {
	case "General_Category", "gc":
		return categorySet(value)
	case "Script", "sc":
		if t, ok := unicode.Scripts[value]; ok {
			return tableSet(t), true
		}
		return nil, false
	}
	if value != "" {
		return nil, false
	}
	if s, ok := categorySet(name); ok {
		return s, true
	}
	in := func(tables ...*unicode.RangeTable) charset {
		var s charset
		for _, t := range tables {
			s = s.union(tableSet(t))
		}
		return s
	}
	if long, ok := propertyAliases[name]; ok {
		name = long
	}
	switch name {
	case "Any":
		return anyChar, true
	case "ASCII":
		return charset{0, 127}, true
	case "Assigned":
		return in(unicode.Cn).negate(), true
	case "Cased":
		return in(unicode.Ll, unicode.Other_Lowercase, unicode.Lu, unicode.Other_Uppercase, unicode.Lt), true
	case "Grapheme_Extend":
		return in(unicode.Me, unicode.Mn, unicode.Other_Grapheme_Extend), true
	case "Alphabetic":
		return in(unicode.L, unicode.Nl, unicode.Other_Alphabetic), true
	case "Lowercase":
		return in(unicode.Ll, unicode.Other_Lowercase), true
	case "Uppercase":
		return in(unicode.Lu, unicode.Other_Uppercase), true
	case "Math":
		return in(unicode.Sm, unicode.Other_Math), true
	case "ID_Start":
		return in(unicode.L, unicode.Nl, unicode.Other_ID_Start).minus(in(unicode.Pattern_Syntax, unicode.Pattern_White_Space)), true
	case "ID_Continue":
		return in(unicode.L, unicode.Nl, unicode.Other_ID_Start, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue).
			minus(in(unicode.Pattern_Syntax, unicode.Pattern_White_Space)), true
	}
	if !binaryProperties[name] {
		return nil, false
	}
	t, ok := unicode.Properties[name]
	if !ok {
		return nil, false
	}
	return tableSet(t), true
}

func categorySet(name string) (charset, bool) {
	if short, ok := unicode.CategoryAliases[name]; ok {
		name = short
	}
	t, ok := unicode.Categories[name]
	if !ok {
		return nil, false
	}
	return tableSet(t), true
}

var propertyAliases = map[string]string{
	"Alpha": "Alphabetic", "Lower": "Lowercase", "Upper": "Uppercase", "space": "White_Space", "IDS": "ID_Start", "IDC": "ID_Continue",
	"AHex": "ASCII_Hex_Digit", "Hex": "Hex_Digit", "Ideo": "Ideographic", "Dia": "Diacritic", "Ext": "Extender", "Pat_Syn": "Pattern_Syntax",
	"Pat_WS": "Pattern_White_Space", "QMark": "Quotation_Mark", "Gr_Ext": "Grapheme_Extend", "RI": "Regional_Indicator", "STerm": "Sentence_Terminal",
	"SD": "Soft_Dotted", "Term": "Terminal_Punctuation", "UIdeo": "Unified_Ideograph", "VS": "Variation_Selector", "Bidi_C": "Bidi_Control",
	"Join_C": "Join_Control", "LOE": "Logical_Order_Exception", "NChar": "Noncharacter_Code_Point", "Dep": "Deprecated",
	"IDSB": "IDS_Binary_Operator", "IDST": "IDS_Trinary_Operator",
}

// binaryProperties are those of ECMA-262 that are a table of their own.
var binaryProperties = map[string]bool{
	"ASCII_Hex_Digit": true, "Bidi_Control": true, "Dash": true, "Deprecated": true, "Diacritic": true, "Extender": true, "Hex_Digit": true,
	"IDS_Binary_Operator": true, "IDS_Trinary_Operator": true, "Ideographic": true, "Join_Control": true, "Logical_Order_Exception": true,
	"Noncharacter_Code_Point": true, "Pattern_Syntax": true, "Pattern_White_Space": true, "Quotation_Mark": true, "Radical": true,
	"Regional_Indicator": true, "Sentence_Terminal": true, "Soft_Dotted": true, "Terminal_Punctuation": true, "Unified_Ideograph": true,
	"Variation_Selector": true, "White_Space": true,
}
