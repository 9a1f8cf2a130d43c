package lexical

import (
	"testing"
)

// What a predicate costs to make, with the machine and the first text, and
// what a byte costs afterwards.
func BenchmarkStrings(b *testing.B) {
	pattern := func(src string) func() Predicate {
		return func() Predicate {
			p, err := Pattern(src)
			if err != nil {
				b.Fatal(err)
			}
			return p
		}
	}
	format := func(name string) func() Predicate {
		return func() Predicate {
			p, _ := Format(name)
			return p
		}
	}
	for _, c := range []struct {
		name string
		make func() Predicate
		text string
	}{
		{"length", func() Predicate { return Length(1, 100000) }, "the quick brown fox"},
		{"identifier", pattern(`^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`), "get_current_weather"},
		{"letters", pattern(`^[\p{L}\p{N} ]+$`), "Überzeugung 42"},
		{"lookahead", pattern(`^(?=.*[A-Z])(?=.*\d).{8,}$`), "correctHorse42"},
		{"counted", pattern(`[a-z]{1,1000}@`), "somebody@example.com"},
		{"date-time", format("date-time"), "2024-02-29T23:59:59.123+01:00"},
		{"email", format("email"), "somebody@example.com"},
		{"uri", format("uri"), "https://example.com/a/b?c=d#e"},
		{"ipv6", format("ipv6"), "2001:db8::ff00:42:8329"},
		{"hostname", format("hostname"), "www.example.com"},
	} {
		text := quote(c.text)
		b.Run("what="+c.name+"/step=make", func(b *testing.B) {
			for b.Loop() {
				s, err := NewStrings([]Predicate{c.make()}, nil, Limits{})
				if err != nil {
					b.Fatal(err)
				}
				if q := read(s, text); !s.Closed(q) || !s.Truth(q).Has(0) {
					b.Fatal(c.text)
				}
			}
		})
		b.Run("what="+c.name+"/step=warm", func(b *testing.B) {
			s, err := NewStrings([]Predicate{c.make()}, nil, Limits{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				read(s, text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(text)-1), "ns/byte")
			b.ReportMetric(float64(s.Bytes())/1024, "kB")
		})
	}
}

func BenchmarkNames(b *testing.B) {
	names := make([]string, 5000)
	for i := range names {
		names[i] = "property_" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
	}
	b.Run("step=make", func(b *testing.B) {
		for b.Loop() {
			if _, err := NewStrings(nil, names, Limits{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("step=all", func(b *testing.B) {
		for b.Loop() {
			s, err := NewStrings(nil, names, Limits{})
			if err != nil {
				b.Fatal(err)
			}
			for _, n := range names {
				read(s, quote(n))
			}
			b.ReportMetric(float64(s.Bytes())/1024, "kB")
		}
	})
}

func BenchmarkNumbers(b *testing.B) {
	preds := []NumberPredicate{Integer(), Minimum(rat("1"), false), Maximum(rat("100"), false)}
	b.Run("step=make", func(b *testing.B) {
		for b.Loop() {
			n := newNumbers(b, preds)
			runNumber(n, "42")
		}
	})
	b.Run("step=reachable", func(b *testing.B) {
		for b.Loop() {
			n := newNumbers(b, preds)
			n.Reachable(runNumber(n, "4"))
		}
	})
	b.Run("step=warm", func(b *testing.B) {
		n := newNumbers(b, preds)
		for b.Loop() {
			runNumber(n, "42.50e1")
		}
		b.ReportMetric(float64(n.Bytes())/1024, "kB")
	})
}
