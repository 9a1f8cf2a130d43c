package grammar

import (
	"errors"
	"fmt"
	"math/big"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Limits of what is written. Numbers: 15 digits are below 2^53, which a client
// in JavaScript reads back as written.
const (
	maxPlaces  = 15
	maxWhole   = 999_999_999_999_999
	maxCounted = 4096      // characters or items counted one by one
	maxGrammar = 512 << 10 // bytes of one tool's grammar
)

// An ebnf writes langs as rules of xgrammar's EBNF. Equal bodies share a rule.
//
// Why EBNF and not the engine's own json_schema: measured on 0.2.8 the latter
// lets strings hold surrogates as bytes that are not UTF-8, counts maxLength
// without escapes and at 6 s of compile time, writes "a\/b" for "a/b", and
// drops keywords without a word. Here a string with maxLength N is a rule with
// max_chars=N: the engine counts at run time. It counts raw characters and may
// finish an escape that it has begun, so a string of it has at most N
// characters; compile time doesn't depend on N (35 ms).
type ebnf struct {
	rules  []string
	byBody map[string]string
	size   int
}

var errTooLarge = errors.New("the grammar would be larger than 512 KiB")

const (
	space = `[ \n\t]?`
	// rawChars as a class
	rawClass = `[ !#-\[\]-\uD7FF\uE000-\U0010FFFF]`
	// what may stand behind a backslash; no halves of surrogate pairs
	escapes = `( ["\\/bfnrt] | "u" ( [0-9A-CE-Fa-ce-f] [0-9A-Fa-f] | [Dd] [0-7] ) [0-9A-Fa-f] [0-9A-Fa-f] )`
)

// named makes a rule whose body may speak of the rule itself: the name is what
// body gets.
func (w *ebnf) named(hint string, body func(name string) string) string {
	key := hint + "\x00" + body("@")
	if name, ok := w.byBody[key]; ok {
		return name
	}
	name := hint + strconv.Itoa(len(w.rules))
	w.byBody[key] = name
	text := name + strings.Replace(body(name), "::=", " ::=", 1)
	w.rules = append(w.rules, text)
	w.size += len(text)
	return name
}

func (w *ebnf) rule(hint, body string) string {
	return w.named(hint, func(string) string { return "::= " + body })
}

// write gives a grammar whose root is l.
func write(l *lang, defs []*def) (g string, err error) {
	w := &ebnf{byBody: map[string]string{}}
	for i, d := range defs {
		d.name = "d" + strconv.Itoa(i)
	}
	root := w.value(l)
	var tail []string
	for _, d := range defs {
		if d.productive {
			tail = append(tail, d.name+" ::= "+w.value(d.lang))
		}
	}
	if w.size > maxGrammar {
		return "", errTooLarge
	}
	all := append([]string{"root ::= " + root}, append(tail, w.rules...)...)
	g = strings.Join(all, "\n") + "\n"
	if len(g) > maxGrammar {
		return "", errTooLarge
	}
	return g, nil
}

// value is an expression for l that can stand in a sequence.
func (w *ebnf) value(l *lang) string {
	if w.size > maxGrammar {
		return `""`
	}
	switch l.kind {
	case anyValue:
		return w.any()
	case literals:
		alts := make([]string, len(l.lits))
		for i, s := range l.lits {
			alts[i] = literal(s)
		}
		return group(alts)
	case boolean:
		return `( "true" | "false" )`
	case integer, number:
		return w.number(l)
	case text:
		return w.text(l)
	case array:
		return w.array(l)
	case object:
		return w.object(l)
	case choice:
		var alts []string
		for _, a := range l.alts {
			if e := w.value(a); !slices.Contains(alts, e) {
				alts = append(alts, e)
			}
		}
		return group(alts)
	case reference:
		return l.def.name
	}
	panic("grammar: a lang without values is written")
}

func group(alts []string) string {
	if len(alts) == 1 {
		return alts[0]
	}
	return "( " + strings.Join(alts, " | ") + " )"
}

// literal writes a text as an EBNF string.
func literal(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7F:
			fmt.Fprintf(&b, `\u%04X`, r)
		case r < 0x7F:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (w *ebnf) any() string {
	return w.named("any", func(any string) string {
		str := w.text(&lang{kind: text, max: -1})
		num := w.number(&lang{kind: number, places: maxPlaces})
		key := w.text(&lang{kind: text, max: -1})
		member := key + ` ":" ` + space + " " + any
		return `::= "{" ` + space + " ( " + member + ` ( "," ` + space + " " + member + " )* " + space + ` )? "}" | "[" ` + space +
			" ( " + any + ` ( "," ` + space + " " + any + " )* " + space + ` )? "]" | ` + str + " | " + num + ` | "true" | "false" | "null"`
	})
}

func (w *ebnf) text(l *lang) string {
	if l.pattern != nil {
		return w.pattern(l.pattern)
	}
	if l.max == 0 {
		return `"\"\""`
	}
	head := `"\"" `
	switch char := rawClass + ` | "\\" ` + escapes; {
	case l.min == 1:
		// Inline: 100 ms more to compile, and masks of 60 us for 40 ms.
		head += "( " + char + " ) "
	case l.min > 1:
		head += w.rule("char", char) + "{" + strconv.Itoa(l.min) + "} "
	}
	if l.max < 0 {
		return head + w.tail()
	}
	if l.max > l.min {
		chars := w.named("chars", func(me string) string {
			return `::= ( "" | ` + rawClass + " " + me + ` | "\\" ` + escapes + " " + me + ` ) (= "\"")`
		})
		head += w.capped(chars, l.max-l.min) + " "
	}
	return head + `"\""`
}

// tail is the rest of a string with its closing quote. It has no lookahead: a
// wider one than what really follows makes xgrammar allow tokens which it then
// refuses, and that fails the request.
func (w *ebnf) tail() string {
	return w.named("str", func(me string) string {
		return `::= "\"" | ` + rawClass + " " + me + ` | "\\" ` + escapes + " " + me
	})
}

// capped is a rule that ends after n raw characters of rule at the latest.
func (w *ebnf) capped(rule string, n int) string {
	return w.named("max", func(string) string {
		return "[max_chars=" + strconv.Itoa(min(n, 1<<30)) + "]::= " + rule
	})
}

func (w *ebnf) array(l *lang) string {
	item := func(x *lang) string { return w.shared("item", x) }
	sep := `"," ` + space + " "
	var head string
	for i, p := range l.prefix {
		if i > 0 {
			head += sep
		}
		head += item(p) + " "
	}
	closed := space + ` "]"`
	least := max(0, l.min-len(l.prefix))
	most := -1
	if l.max >= 0 {
		most = l.max - len(l.prefix)
	}
	if l.item == nil || most == 0 {
		if head == "" {
			return `"[" ` + closed
		}
		return `"[" ` + space + " " + head + closed
	}
	it := item(l.item)
	if head == "" {
		if most == 1 {
			if least == 1 {
				return `"[" ` + space + " " + it + " " + closed
			}
			return `"[" ` + space + " ( " + it + " " + closed + ` | "]" )`
		}
		list := it + " ( " + sep + it + " )" + repeat(max(0, least-1), minus(most, 1)) + " " + closed
		if least == 0 {
			return `"[" ` + space + " ( " + list + ` | "]" )`
		}
		return `"[" ` + space + " " + list
	}
	return `"[" ` + space + " " + head + "( " + sep + it + " )" + repeat(least, most) + " " + closed
}

func minus(a, b int) int {
	if a < 0 {
		return a
	}
	return a - b
}

// repeat is the suffix for least to most of what stands before it.
func repeat(least, most int) string {
	switch {
	case most < 0 && least == 0:
		return "*"
	case most < 0 && least == 1:
		return "+"
	case most < 0:
		return "{" + strconv.Itoa(least) + ",}"
	case least == 0 && most == 1:
		return "?"
	}
	return "{" + strconv.Itoa(least) + "," + strconv.Itoa(most) + "}"
}

// shared makes a rule of what is written more than once in an expression.
func (w *ebnf) shared(hint string, l *lang) string {
	e := w.value(l)
	if !strings.Contains(e, " ") {
		return e
	}
	return w.rule(hint, e)
}

func (w *ebnf) object(l *lang) string {
	sep := `"," ` + space + " "
	if len(l.fields) == 0 {
		if l.rest == nil || l.max == 0 {
			return `"{" ` + space + ` "}"`
		}
		key := ""
		if l.key != nil {
			key = w.text(l.key)
			if l.key.kind != text {
				key = w.value(l.key)
			}
		} else {
			key = w.text(&lang{kind: text, max: -1})
		}
		member := w.rule("member", key+` ":" `+space+" "+w.value(l.rest))
		closed := space + ` "}"`
		if l.max == 1 {
			if l.min > 0 {
				return `"{" ` + space + " " + member + " " + closed
			}
			return `"{" ` + space + " ( " + member + " " + closed + ` | "}" )`
		}
		list := member + " ( " + sep + member + " )" + repeat(max(0, l.min-1), minus(l.max, 1)) + " " + closed
		if l.min > 0 {
			return `"{" ` + space + " " + list
		}
		return `"{" ` + space + " ( " + list + ` | "}" )`
	}
	members := make([]string, len(l.fields))
	for i, f := range l.fields {
		e := w.value(f.lang)
		if !f.required && strings.Contains(e, " ") {
			e = w.rule("value", e) // it may be written twice below
		}
		members[i] = literal(string(jsontext.AppendString(nil, f.key))+":") + " " + space + " " + e
	}
	// after is what may follow once a member has been written.
	after := space + ` "}"`
	afters := make([]string, len(l.fields)+1)
	afters[len(l.fields)] = after
	for i := len(l.fields) - 1; i > 0; i-- {
		next := sep + members[i] + " " + afters[i+1]
		if l.fields[i].required {
			afters[i] = next
		} else {
			afters[i] = w.rule("more", next+" | "+afters[i+1])
		}
	}
	var alts []string
	for i, f := range l.fields {
		alts = append(alts, members[i]+" "+afters[i+1])
		if f.required {
			break
		}
		if i == len(l.fields)-1 {
			alts = append(alts, `"}"`)
		}
	}
	return `"{" ` + space + " " + group(alts)
}

func (w *ebnf) pattern(p *pattern) string {
	open := w.named("open", func(me string) string {
		return `::= "" | ` + rawClass + " " + me + ` | "\\" ` + escapes + " " + me
	})
	var alts []string
	for _, b := range p.branches {
		e := `"\"" `
		if !b.start {
			e += open + " "
		}
		for _, re := range b.seq {
			e += w.regexp(re) + " "
		}
		if b.end {
			e += `"\""`
		} else {
			e += w.tail()
		}
		alts = append(alts, e)
	}
	return group(alts)
}

func (w *ebnf) regexp(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return `""`
	case syntax.OpCapture:
		return w.regexp(re.Sub[0])
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			s := jsontext.AppendString(nil, string(re.Rune))
			return literal(string(s[1 : len(s)-1]))
		}
		var seq []string
		for _, r := range re.Rune {
			one := *re
			one.Rune = []rune{r}
			seq = append(seq, class(setOf(&one)))
		}
		return strings.Join(seq, " ")
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return class(setOf(re))
	case syntax.OpConcat:
		var seq []string
		for _, sub := range re.Sub {
			seq = append(seq, w.regexp(sub))
		}
		return strings.Join(seq, " ")
	case syntax.OpAlternate:
		var alts []string
		for _, sub := range re.Sub {
			alts = append(alts, w.regexp(sub))
		}
		return group(alts)
	}
	from, to := bounds(re)
	sub := re.Sub[0]
	if single(sub) && (to < 0 || to-from > 8) {
		// A loop over one class; where it has a limit the engine counts.
		s := setOf(sub)
		loop := class(s) + "*"
		if s.escaped != "" {
			loop = w.named("loop", func(me string) string {
				body := `::= ""`
				if len(s.raw) > 0 {
					body += " | " + rawSet(s.raw) + " " + me
				}
				return body + ` | "\\" ` + escapeSet(s.escaped) + " " + me
			})
		}
		if to >= 0 {
			loop = w.capped(loop, to-from)
		}
		return strings.TrimSpace(copies(class(s), from) + " " + loop)
	}
	for sub.Op == syntax.OpCapture {
		sub = sub.Sub[0]
	}
	if to < 0 && (sub.Op == syntax.OpStar || sub.Op == syntax.OpPlus && from > 0) {
		return w.regexp(sub) // (x*)* and (x+)+
	}
	e := w.regexp(sub)
	if strings.ContainsAny(e, " *+?{") {
		e = "( " + e + " )"
	}
	if from == 1 && to == 1 {
		return e
	}
	if to == 0 {
		return `""`
	}
	return e + repeat(from, to)
}

func copies(e string, n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return e
	}
	if strings.Contains(e, " ") {
		e = "( " + e + " )"
	}
	return e + "{" + strconv.Itoa(n) + "}"
}

func class(s charSet) string {
	switch {
	case s.escaped == "":
		return rawSet(s.raw)
	case len(s.raw) == 0:
		return `"\\" ` + escapeSet(s.escaped)
	}
	return "( " + rawSet(s.raw) + ` | "\\" ` + escapeSet(s.escaped) + " )"
}

func rawSet(pairs []rune) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := 0; i < len(pairs); i += 2 {
		classChar(&b, pairs[i])
		if pairs[i+1] > pairs[i] {
			b.WriteByte('-')
			classChar(&b, pairs[i+1])
		}
	}
	b.WriteByte(']')
	return b.String()
}

func classChar(b *strings.Builder, r rune) {
	switch {
	case r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z':
		b.WriteRune(r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04X`, r)
	default:
		fmt.Fprintf(b, `\U%08X`, r)
	}
}

func escapeSet(s string) string {
	return "[" + strings.NewReplacer(`\`, `\\`).Replace(s) + "]"
}

// ---- numbers

func ratInt(i int64) *big.Rat { return new(big.Rat).SetInt64(i) }

func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) } // Div rounds down for positive divisors

func ceil(r *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(r)))
}

// decimal writes r in decimal digits, if it ends within maxPlaces.
func decimal(r *big.Rat) (string, bool) {
	for p := 0; p <= maxPlaces; p++ {
		scaled := new(big.Rat).Mul(r, new(big.Rat).SetInt(pow10(p)))
		if scaled.IsInt() {
			return r.FloatString(p), true
		}
	}
	return "", false
}

func pow10(p int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(p)), nil) }

// number writes the decimals between the bounds of l. It never fails: narrow
// makes sure by bounded that there is one.
func (w *ebnf) number(l *lang) string {
	if l.lo == nil && l.hi == nil {
		if l.kind == integer {
			return `( "0" | "-"? [1-9] [0-9]{0,14} )`
		}
		return w.rule("number", `"-"? ( "0" | [1-9] [0-9]{0,14} ) ( "." [0-9]{1,15} )? ( [eE] [\+\-]? [0-9]{1,2} )?`)
	}
	return w.rule("number", group(w.between(l)))
}

// ends settles missing bounds: 15 digits, or one digit more than the bound
// which is there.
func ends(l *lang) (lo, hi *big.Rat, loOpen, hiOpen bool) {
	lo, hi = l.lo, l.hi
	far := func(b *big.Rat) *big.Rat {
		limit := ratInt(maxWhole + 1)
		if b == nil || new(big.Rat).Abs(b).Cmp(limit) < 0 {
			return limit
		}
		return new(big.Rat).Mul(new(big.Rat).Abs(b), ratInt(10))
	}
	loOpen, hiOpen = l.loOpen || lo == nil, l.hiOpen || hi == nil
	if l.lo == nil {
		lo = new(big.Rat).Neg(far(l.hi))
	}
	if l.hi == nil {
		hi = far(l.lo)
	}
	return lo, hi, loOpen, hiOpen
}

// between gives alternatives; none if no number with that many places lies
// between the bounds.
func (w *ebnf) between(l *lang) []string {
	lo, hi, loOpen, hiOpen := ends(l)
	a, b, ok := grid(lo, hi, loOpen, hiOpen, l.places)
	if !ok {
		return nil
	}
	var alts []string
	if a.Sign() < 0 {
		from := big.NewInt(1)
		if l.places > 0 {
			from.SetInt64(0) // "-0.0" is 0, and saves the rules that would exclude it
		}
		if b.Sign() < 0 {
			from = new(big.Int).Neg(b)
		}
		for _, e := range w.magnitudes(from, new(big.Int).Neg(a), l.places) {
			alts = append(alts, `"-" `+e)
		}
	}
	if b.Sign() >= 0 {
		from := a
		if a.Sign() < 0 {
			from = new(big.Int)
		}
		alts = append(alts, w.magnitudes(from, b, l.places)...)
	}
	return alts
}

// magnitudes writes a·10^-places to b·10^-places, 0 <= a <= b. Every number on
// the grid has a spelling; trailing zeros are optional.
func (w *ebnf) magnitudes(a, b *big.Int, places int) []string {
	unit := pow10(places)
	ai, af := new(big.Int).QuoRem(a, unit, new(big.Int))
	bi, bf := new(big.Int).QuoRem(b, unit, new(big.Int))
	frac := func(f *big.Int) string {
		if places == 0 {
			return ""
		}
		return fmt.Sprintf("%0*s", places, f.String())
	}
	zeros, nines := strings.Repeat("0", places), strings.Repeat("9", places)
	var alts []string
	add := func(whole string, from, to string) {
		if f := w.fraction(from, to); f == "" {
			alts = append(alts, whole)
		} else {
			alts = append(alts, whole+" "+f)
		}
	}
	if ai.Cmp(bi) == 0 {
		add(literal(ai.String()), frac(af), frac(bf))
		return alts
	}
	one := big.NewInt(1)
	from, to := ai, bi
	if strings.Trim(frac(af), "0") != "" {
		add(literal(ai.String()), frac(af), nines)
		from = new(big.Int).Add(ai, one)
	}
	if frac(bf) != nines {
		to = new(big.Int).Sub(bi, one)
	}
	if from.Cmp(to) <= 0 {
		add(group(wholes(from, to)), zeros, nines)
	}
	if frac(bf) != nines {
		add(literal(bi.String()), zeros, frac(bf))
	}
	return alts
}

// fraction writes the point and the digits after it, between from and to,
// both of full length. The empty text stands for all zeros.
func (w *ebnf) fraction(from, to string) string {
	if from == "" {
		return ""
	}
	n := len(from)
	if strings.Trim(from, "0") == "" {
		if strings.Trim(to, "9") == "" {
			return "( \".\" [0-9]{1," + strconv.Itoa(n) + "} )?"
		}
		return `( "." ` + w.digits(from, to) + " )?"
	}
	return `"." ` + w.digits(from, to)
}

// digits writes one or more digits d with from <= d <= to, where d shorter
// than from stands for d followed by zeros.
func (w *ebnf) digits(from, to string) string {
	n := len(from)
	if n == 0 {
		return `""`
	}
	rest := func(f, t string) string { // zero or more digits
		if f == "" {
			return ""
		}
		zero, nine := strings.Trim(f, "0") == "", strings.Trim(t, "9") == ""
		switch {
		case zero && nine:
			return " [0-9]{0," + strconv.Itoa(len(f)) + "}"
		case zero:
			return " " + w.rule("digits", `"" | `+w.digits(f, t))
		}
		return " " + w.rule("digits", w.digits(f, t))
	}
	a, b := from[0], to[0]
	tail0, tail9 := strings.Repeat("0", n-1), strings.Repeat("9", n-1)
	if a == b {
		return "[" + string(a) + "]" + rest(from[1:], to[1:])
	}
	var alts []string
	lo, hi := a, b
	if from[1:] != tail0 {
		alts = append(alts, "["+string(a)+"]"+rest(from[1:], tail9))
		lo++
	}
	last := ""
	if to[1:] != tail9 {
		last = "[" + string(b) + "]" + rest(tail0, to[1:])
		hi--
	}
	if lo <= hi {
		alts = append(alts, "["+string(lo)+"-"+string(hi)+"]"+rest(tail0, tail9))
	}
	if last != "" {
		alts = append(alts, last)
	}
	return group(alts)
}

// wholes writes the integers a to b, 0 <= a <= b.
func wholes(a, b *big.Int) []string {
	x, y := a.String(), b.String()
	if len(x) == len(y) {
		return []string{sameLength(x, y)}
	}
	var alts []string
	if x == "0" {
		alts, x = append(alts, `"0"`), "1"
		if len(y) == 1 {
			return append(alts, sameLength(x, y))
		}
	}
	if strings.Trim(x[1:], "0") != "" || x[0] != '1' {
		alts = append(alts, sameLength(x, strings.Repeat("9", len(x))))
		x = "1" + strings.Repeat("0", len(x))
	}
	full := strings.Trim(y, "9") == ""
	to := len(y)
	if !full {
		to--
	}
	if len(x) <= to {
		alts = append(alts, "[1-9] [0-9]{"+strconv.Itoa(len(x)-1)+","+strconv.Itoa(to-1)+"}")
	}
	if !full {
		alts = append(alts, sameLength("1"+strings.Repeat("0", len(y)-1), y))
	}
	return alts
}

// sameLength writes the digit strings x to y of equal length.
func sameLength(x, y string) string {
	if x == "" {
		return `""`
	}
	n := len(x) - 1
	zeros, nines := strings.Repeat("0", n), strings.Repeat("9", n)
	if x[1:] == zeros && y[1:] == nines {
		e := "[" + string(x[0]) + "-" + string(y[0]) + "]"
		if x[0] == y[0] {
			e = "[" + string(x[0]) + "]"
		}
		if n > 0 {
			e += " [0-9]{" + strconv.Itoa(n) + "}"
		}
		return e
	}
	if x[0] == y[0] {
		return "[" + string(x[0]) + "] " + sameLength(x[1:], y[1:])
	}
	var alts []string
	lo, hi := x[0], y[0]
	if x[1:] != zeros {
		alts = append(alts, "["+string(lo)+"] "+sameLength(x[1:], nines))
		lo++
	}
	if y[1:] != nines {
		hi--
	}
	if lo <= hi {
		alts = append(alts, sameLength(string(lo)+zeros, string(hi)+nines))
	}
	if y[1:] != nines {
		alts = append(alts, "["+string(y[0])+"] "+sameLength(zeros, y[1:]))
	}
	return group(alts)
}
