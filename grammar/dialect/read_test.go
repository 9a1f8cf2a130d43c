package dialect

import (
	"errors"
	"strings"
	"testing"
)

// TestReadErrors: what a reader doesn't know it refuses, with the place.
func TestReadErrors(t *testing.T) {
	for _, tt := range []struct {
		read func(string) (*Grammar, error)
		text string
		want string
	}{
		{ReadEBNF, "", "EBNF, line 1, byte 1: no rule"},
		{ReadEBNF, "root ::= a", "EBNF, line 1, byte 1: no rule a"},
		{ReadEBNF, "root ::= \"a\"\nroot ::= \"b\"", "EBNF, line 2, byte 1: rule root stands twice"},
		{ReadEBNF, `root ::= "a`, "EBNF, line 1, byte 12: the text ends"},
		{ReadEBNF, `root ::= "\q"`, `EBNF, line 1, byte 13: no escape \q`},
		{ReadEBNF, `root ::= [b-a]`, "EBNF, line 1, byte 14: the range is empty"},
		{ReadEBNF, `root ::= "a"**`, "EBNF, line 1, byte 14: a second repetition of the same"},
		{ReadEBNF, `root ::= "a"{2,1}`, "EBNF, line 1, byte 17: {2,1} is no range"},
		{ReadEBNF, `root ::= "\uD800"`, `EBNF, line 1, byte 13: "D800" is no character`},
		{ReadGBNF, `root[max_chars=1] ::= "a"`, `GBNF, line 1, byte 5: "::=" should be here`},
		{ReadGBNF, "root ::= " + strings.Repeat("(", 600), "GBNF, line 1, byte 522: groups nested more than 512 deep"},
		{ReadLark, `start: /a`, "Lark, line 1, byte 9: no second slash"},
		{ReadLark, `start: %json {}`, "Lark, line 1, byte 8: a name should be here"},
		{ReadRegex, `a(b)`, `regex, byte 2: '(' is not read here`},
		{ReadRegex, `\d`, `regex, byte 3: no escape \d`},
	} {
		_, err := tt.read(tt.text)
		var re *ReadError
		if !errors.As(err, &re) || err.Error() != tt.want {
			t.Errorf("%.60q: %v, want %s", tt.text, err, tt.want)
		}
	}
}

// TestMachine: what texts a grammar has by the rules of its notation.
func TestMachine(t *testing.T) {
	for _, tt := range []struct {
		read     func(string) (*Grammar, error)
		text     string
		yes, not []string
	}{
		{ReadEBNF, `root ::= "a" [b-d]{2,3} ( "x" | "" )`, []string{"abb", "abcdx"}, []string{"ab", "abbbb", "x"}},
		{ReadEBNF, "root ::= \"(\" root \")\" | [^()]", []string{"a", "((é))"}, []string{"(", "(a", "a)"}},
		// A rule with a limit ends where its body may end, once the limit is reached.
		{ReadEBNF, "root ::= \"<\" m \">\"\nm[max_chars=2] ::= l\nl ::= \"\" | [a-z] l | \"\\\\\" [nt] l", []string{"<>", "<ab>", `<a\n>`, `<\n>`}, []string{"<abc>", `<\na>`, `<ab\n>`}},
		{ReadEBNF, "root ::= \"<\" m \">\"\nm[max_chars=3] ::= f\nf ::= \"\" | [a-z] f | \"-\" b\nb ::= \"\" | \"-\" b | [a-z] f", []string{"<>", "<a-b>", "<--->", "<-a>"}, []string{"<a-bc>", "<---->", "<A>"}},
		{ReadGBNF, `root ::= "a"{3,} "\x41"`, []string{"aaaA", "aaaaaaA"}, []string{"aaA"}},
		{ReadLark, "start: root\nroot: \"a\" /[0-9]{1,2}|\\x2F/ <b>?", []string{"a7", "a12", "a/", "a/<b>"}, []string{"a", "a123"}},
		{ReadRegex, `(?:ab|c\.)*\u{1F600}?`, []string{"", "abc.ab", "c.😀"}, []string{"c", "cx"}},
	} {
		g, err := tt.read(tt.text)
		if err != nil {
			t.Fatalf("%s: %v", tt.text, err)
		}
		start := g.Rules[0].Name
		m, err := g.Machine("", start)
		if err != nil {
			t.Fatalf("%s: %v", tt.text, err)
		}
		for _, s := range tt.yes {
			if !m.Accepts(s) {
				t.Errorf("%s: refuses %q", tt.text, s)
			}
		}
		for _, s := range tt.not {
			if m.Accepts(s) {
				t.Errorf("%s: accepts %q", tt.text, s)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{`root ::= "a" [b-d]{2,3}`, "start: /[^a]+/ \"b\"", `(?:a|b){2}\u{41}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 || strings.Count(text, "{") > 3 {
			return
		}
		for _, read := range []func(string) (*Grammar, error){ReadEBNF, ReadGBNF, ReadLark, ReadRegex} {
			g, err := read(text)
			var re *ReadError
			if err != nil && !errors.As(err, &re) {
				t.Fatal(err)
			}
			if err == nil {
				if m, err := g.Machine("", g.Rules[0].Name); err == nil {
					m.Accepts("aab")
				}
			}
		}
	})
}

// TestShortest: the end that is told for the sake of an example is a shortest
// one, whatever stands around.
func TestShortest(t *testing.T) {
	for _, tt := range []struct{ text, before, want string }{
		{`root ::= "ab" | "c" [x-z]*`, "", "c"},
		{`root ::= "ab" | "c" [x-z]*`, "a", "b"},
		{"root ::= \"(\" root \")\" | [a-z]", "((", "a))"},
		{`root ::= ( "a" | "bc" ){3,5} "."`, "", "aaa."},
		{`root ::= ( "a" | "bc" ){3,5} "."`, "ab", "ca."},
		{`root ::= ( "a" | "bc" ){3,5} "."`, "aaaa", "."},
		{`root ::= ( "a"* "," ){2}`, "aa", ",,"},
		{"root ::= \"<\" m \">\"\nm[max_chars=2] ::= l\nl ::= \"\" | [a-z] l", "<a", ">"},
		{"root ::= a \"!\"\na ::= b | \"long\"\nb ::= \"\" | b2\nb2 ::= b", "", "!"},
		{`root ::= "é" [^a]`, "", "é0"},
	} {
		g, err := ReadEBNF(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := g.Machine("", "root")
		if err != nil {
			t.Fatal(err)
		}
		w := m.walker(nil)
		at := w.at(m.Start)
		for i := range len(tt.before) {
			at = w.step(at, tt.before[i])
		}
		if got, ok := m.shortest(at); !ok || got != tt.want || !m.Accepts(tt.before+got) {
			t.Errorf("%s: after %q: %q, %v, want %q", tt.text, tt.before, got, ok, tt.want)
		}
	}
	g, _ := ReadEBNF("root ::= \"a\" root")
	if m, err := g.Machine("", "root"); err != nil || m.walker(nil).at(m.Start) != nil {
		t.Errorf("a text without an end is begun: %v", err)
	}
}
