package lexical

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patterns that make backtracking or unrolling explode are decided, or refused
// with the name of a limit. The time is that of two busy cores.
func TestHostilePatterns(t *testing.T) {
	as := strings.Repeat("a", 3000)
	for _, pattern := range []string{
		`^(a+)+$`, `^(a|aa)+$`, `^(a|a)*b$`, `(.*){50}x`, `^(.*a){50}$`, `.{0,100000}x`, `^[a-z]{1,100000}$`, `[a-z]{1000}$`, `^(a?){1000}a{1000}$`,
		`a.{1000}$`, `^([a-z]{1,100}){1,100}$`, `^([a-z]{2,100}-?){1,100}$`, `^(\w+\s?)*$`, `(x+x+)+y`, `^(?=(a+)+$)(?!.*b)[a-z]+$`, `(?<=(a|aa){20})b`,
		`^(?:(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x)(?:(?=a)|(?=b)|x))*$`,
		`(((((a{0,100}){0,100}){0,100}){0,100}){0,100})`, `^(((a{2,3}){2,100}b?){2,100}c?){2,100}$`, `(` + strings.Repeat("(a|b", 400) + strings.Repeat(")*", 400) + `)x`,
		strings.Repeat(`a?`, 5000) + strings.Repeat("a", 5000), strings.Repeat(`(?=.*a)`, 500), strings.Repeat(`(?!.*b.{50}c)`, 20), `[\p{L}\p{N}]{1,1000}@\p{Lu}{3,}`,
	} {
		short := pattern
		if len(short) > 40 {
			short = short[:40] + "…"
		}
		start := time.Now()
		p, err := Pattern(pattern)
		if err != nil {
			t.Logf("%s: %v", short, err)
			continue
		}
		s, err := NewStrings([]Predicate{p}, nil, Limits{})
		var limit *LimitError
		if err != nil {
			if !errors.As(err, &limit) {
				t.Fatal(err)
			}
			t.Logf("%s: %v", short, err)
			continue
		}
		compiled := time.Since(start)
		for _, text := range []string{as, as + "b", strings.Repeat("ab", 1000)} {
			if q := read(s, `"`+text+`"`); q == Lost {
				t.Logf("%s: %v", short, s.Limit())
			}
		}
		stepped := time.Since(start) - compiled
		s.Reachable(s.Start())
		t.Logf("%s: compiled in %v, 8,000 bytes in %v, start looked ahead in %v, %d kB, work %d", short, compiled, stepped, time.Since(start)-compiled-stepped, s.Bytes()>>10, s.x.runners[0].work)
	}
}

func TestLimits(t *testing.T) {
	p, err := Pattern(`a.{200}$`)
	if err != nil {
		t.Fatal(err)
	}
	regex, _ := Format("regex")
	for _, c := range []struct {
		p    Predicate
		lim  Limits
		text string
		want string
	}{
		{p, Limits{Bytes: 1 << 17}, strings.Repeat("abacbbacbabbba", 1000), "bytes"},
		{p, Limits{Width: 4}, strings.Repeat("abcbcbacb", 1000), "width"},
		{p, Limits{Work: 1000}, strings.Repeat("abbacbacb", 1000), "work"},
		{regex, Limits{Kept: 20}, "(?<aaaaaaaaaaaaaaaaaaaa", "kept"},
	} {
		s, err := NewStrings([]Predicate{c.p}, nil, c.lim)
		if err != nil {
			t.Fatal(err)
		}
		if q := read(s, quote(c.text)); q != Lost || s.Limit() == nil || s.Limit().What != c.want {
			t.Errorf("%s: %d, %v", c.want, q, s.Limit())
		}
	}
}

func TestHostileClasses(t *testing.T) {
	var distinct strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&distinct, `[\p{L}\u{%X}]`, 0x1F600+i)
	}
	for _, pattern := range []string{strings.Repeat(`\p{L}`, 10000), distinct.String(), strings.Repeat(`[\u0000-\u{10FFFF}]`, 3000), strings.Repeat("(", 600) + strings.Repeat(")", 600), strings.Repeat("x", 1<<17)} {
		start := time.Now()
		p, err := Pattern(pattern)
		if err == nil {
			_, err = NewStrings([]Predicate{p, p}, nil, Limits{})
		}
		t.Logf("%.20s… in %v: %v", pattern, time.Since(start), err)
	}
}

// One machine serves many goroutines, each of which finds what a machine of
// its own does.
func TestConcurrent(t *testing.T) {
	var preds []Predicate
	for _, src := range []string{`^\p{Lu}`, `[0-9]{2,30}$`, `^(?=.*é).*x`} {
		p, err := Pattern(src)
		if err != nil {
			t.Fatal(err)
		}
		preds = append(preds, p)
	}
	preds = append(preds, Length(3, 20))
	names := []string{"Éa1", "x", "é"}
	fresh := func() *Strings {
		s, err := NewStrings(preds, names, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	numbers := newNumbers(t, []NumberPredicate{Integer(), Minimum(rat("3"), true), MultipleOf(rat("0.5"))})
	shared := fresh()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			own := fresh()
			ownNumbers := newNumbers(t, numbers.preds)
			for i := range 200 {
				text := strings.Repeat("É", i%3) + strings.Repeat("x1", (i+g)%12) + fmt.Sprint(i*g) + strings.Repeat("é", (i+g)%2)
				a, b := read(shared, quote(text)), read(own, quote(text))
				if !shared.Closed(a) || shared.Truth(a) != own.Truth(b) || shared.Label(a) != own.Label(b) {
					t.Errorf("%q: %x and %x", text, shared.Truth(a), own.Truth(b))
				}
				half := quote(text)[:len(quote(text))/2]
				x, _ := shared.Reachable(read(shared, half))
				y, _ := own.Reachable(read(own, half))
				if !slices.Equal(x, y) {
					t.Errorf("%q: %v and %v", half, x, y)
				}
				shared.Free(read(shared, half))
				number := fmt.Sprintf("%d.%d", i, g)
				if numbers.Truth(runNumber(numbers, number)) != ownNumbers.Truth(runNumber(ownNumbers, number)) {
					t.Errorf("%s differs", number)
				}
				numbers.Reachable(runNumber(numbers, number[:1]))
			}
		})
	}
	wg.Wait()
}
