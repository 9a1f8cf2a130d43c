package token_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/grammar/token/tokentest"
)

// A diagram is a random automaton over characters as a source: kinds of
// characters lead between few states, maybe up to a number of them. It says
// nothing about runs.
type diagram struct {
	kinds  []func(r rune) bool // the first that holds counts
	to     [][]int             // by state and kind: the next state, -1: nowhere
	most   int                 // characters, 0: any number
	quoted []bool              // by state: a quote may follow, which is the end

	places []place
	index  map[place]uint32
}

// A place is a state, how many characters came, and what came of the next.
type place struct {
	state, n int
	part     string
}

const (
	ended   = -2
	nowhere = -1
)

func (d *diagram) number(p place) uint32 {
	if p.state == nowhere {
		return 0
	}
	s, ok := d.index[p]
	if !ok {
		d.places = append(d.places, p)
		s = uint32(len(d.places))
		d.index[p] = s
	}
	return s
}

func (d *diagram) char(p place, r rune) place {
	if r == '"' && d.quoted[p.state] {
		return place{state: ended}
	}
	if r == '"' || d.most > 0 && p.n == d.most {
		return place{state: nowhere}
	}
	for k, is := range d.kinds {
		if !is(r) {
			continue
		}
		to := place{state: d.to[p.state][k]}
		if d.most > 0 && to.state >= 0 {
			to.n = p.n + 1
		}
		return to
	}
	return place{state: nowhere}
}

func (d *diagram) step(p place, b byte) place {
	if p.state < 0 {
		return place{state: nowhere}
	}
	part := p.part + string([]byte{b})
	if utf8.FullRuneInString(part) {
		r, n := utf8.DecodeRuneInString(part)
		if r == utf8.RuneError && n <= 1 {
			return place{state: nowhere}
		}
		return d.char(place{state: p.state, n: p.n}, r)
	}
	// Whether any character begins so: one of those that are told apart, or any
	// other.
	p.part = ""
	for _, r := range apart {
		if strings.HasPrefix(string(r), part) && d.char(p, r).state != nowhere {
			return place{p.state, p.n, part}
		}
	}
	part = alike(part)
	if r, ok := filled(part); ok && d.char(p, r).state != nowhere {
		return place{p.state, p.n, part}
	}
	return place{state: nowhere}
}

var apart = []rune("é€\u2028\u2029😀")

// alike is a beginning of which the same may come, where none of apart begins so.
func alike(part string) string {
	switch b := part[0]; {
	case b == 0xE0 && len(part) == 1, b == 0xED && len(part) == 1, b == 0xF0 && len(part) == 1, b == 0xF4 && len(part) == 1:
		return part
	case 0xE5 <= b && b <= 0xE8:
		return "\xE5\xA5"[:len(part)]
	case b < 0xE0, b < 0xF0 && len(part) == 2, len(part) == 3:
		return "\xE9\xA5"
	case b < 0xF0, len(part) == 2:
		return "\xE9"
	}
	return "\xF1"
}

// filled is a character that begins so and isn't told apart.
func filled(part string) (rune, bool) {
	if utf8.FullRuneInString(part) {
		r, n := utf8.DecodeRuneInString(part)
		return r, n == len(part) && n > 1 && r != utf8.RuneError && !slices.Contains(apart, r)
	}
	for _, b := range []byte{0xA5, 0x85, 0x95} {
		if r, ok := filled(part + string([]byte{b})); ok {
			return r, true
		}
	}
	return 0, false
}

func (d *diagram) Start() (uint32, error) { return d.number(place{}), nil }

func (d *diagram) Step(s uint32, b byte) (uint32, error) {
	return d.number(d.step(d.places[s-1], b)), nil
}

func (d *diagram) Accepting(s uint32) bool { return d.places[s-1].part == "" }

func (d *diagram) Classes(s uint32) *[256]uint8 {
	var class [256]uint8
	var to []place
	for b := range 256 {
		n := d.step(d.places[s-1], byte(b))
		if n.state == nowhere {
			continue
		}
		k := slices.Index(to, n)
		if k < 0 {
			k = len(to)
			to = append(to, n)
		}
		class[b] = uint8(k + 1)
	}
	return &class
}

func (d *diagram) Text(uint32) (token.Text, bool) { return token.Text{}, false }
func (d *diagram) Canonical(s uint32) uint32      { return s }
func (d *diagram) Cost() (bytes, work int)        { return 0, 0 }

func random(rng *rand.Rand) *diagram {
	in := func(lo, hi rune) func(rune) bool { return func(r rune) bool { return lo <= r && r <= hi } }
	d := &diagram{index: map[place]uint32{}, kinds: []func(rune) bool{
		in('a', 'm'), in('n', 'z'), in('A', 'Z'), in('0', '9'), func(r rune) bool { return strings.ContainsRune(" .-@", r) },
		func(r rune) bool { return r == '\\' }, in('!', '~'),
		func(r rune) bool { return slices.Contains(apart, r) }, in(0x5000, 0x8FFF), in(0x80, utf8.MaxRune),
	}}
	if rng.IntN(2) == 0 {
		d.most = 1 + rng.IntN(140)
	}
	states := 1 + rng.IntN(5)
	for range states {
		row := make([]int, len(d.kinds))
		for k := range row {
			if row[k] = rng.IntN(states); rng.IntN(8) == 0 {
				row[k] = nowhere
			}
		}
		d.to = append(d.to, row)
		d.quoted = append(d.quoted, rng.IntN(2) == 0)
	}
	return d
}

// TestRegions: masks in random automata over characters, of which nothing is
// said, are those of the whole vocabulary.
func TestRegions(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	chars := []rune("aabcdefxyzABCXYZ0123.- @\\\"é€中汉\u2028\u2029😀\u3000")
	pieces := map[string]bool{}
	for len(pieces) < 3000 {
		n := 1 + rng.IntN(4)
		if rng.IntN(30) == 0 {
			n = 100
		}
		var b strings.Builder
		same := rng.IntN(3) == 0
		for range n {
			r := chars[rng.IntN(len(chars))]
			if n > 4 || same {
				r = []rune("abxyABZ")[rng.IntN(7)]
			}
			b.WriteRune(r)
		}
		s := b.String()
		if s = s[rng.IntN(min(3, len(s))):]; rng.IntN(3) == 0 { // cut characters
			s = s[:len(s)-rng.IntN(min(3, len(s)))]
		}
		if len(s) > 1 && len(s) <= 128 {
			pieces[s] = true
		}
	}
	var list []string
	for s := range pieces {
		list = append(list, s)
	}
	slices.Sort(list)
	v, err := token.NewVocabulary(tokentest.Ranks(t, list...), 1)
	if err != nil {
		t.Fatal(err)
	}
	places := 0
	for i := range 80 {
		d := random(rng)
		twin := tokentest.New(t, &diagram{kinds: d.kinds, to: d.to, most: d.most, quoted: d.quoted, index: map[place]uint32{}})
		g, err := token.New(v, 0, func() (token.Source, error) { return d, nil })
		if err != nil {
			t.Fatal(err)
		}
		tokentest.Walk(t, g, twin, rng, 8, func(_ *token.Matcher, text []byte, mask []uint64) {
			places++
			tokentest.Compare(t, v, fmt.Sprint(i, " ", d.to, d.quoted, d.most), text, mask, twin.Mask(v, text, false))
		})
	}
	t.Logf("%d places compared", places)
}
