package accept

import (
	"encoding/binary"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// For uniqueItems the items of an array are remembered. A value has a
// canonical text, equal for equal values, which is interned; what is being
// read is a trail.

// A trail is a list of numbers, interned from its end: bytes of a scalar, or
// values within an object or array.
type trail struct{ before, last uint32 }

func (m *machine) trail(before, last uint32) uint32 {
	t := trail{before, last}
	if id, ok := m.trailOf[t]; ok {
		return id
	}
	id := uint32(len(m.trails))
	m.trails = append(m.trails, t)
	m.trailOf[t] = id
	return id
}

func (m *machine) trailOfBytes(id uint32) []byte {
	var b []byte
	for ; id != 0; id = m.trails[id].before {
		b = append(b, byte(m.trails[id].last))
	}
	slices.Reverse(b)
	return b
}

func (m *machine) value(text string) uint32 {
	if id, ok := m.values[text]; ok {
		return id
	}
	id := uint32(len(m.values)) + 1
	m.values[text] = id
	return id
}

// stringOf is the canonical text of the string whose bytes are a trail.
func (m *machine) stringOf(id uint32) string {
	s, err := jsontext.NewReader(m.trailOfBytes(id), 0).String()
	if err != nil {
		panic("accept: a string that was read is no string: " + err.Error())
	}
	return `"` + s
}

// composite is the value of an object or array that has ended.
func (m *machine) composite(f *frame) uint32 {
	var ids []uint32
	for id := f.kept; id != 0; id = m.trails[id].before {
		ids = append(ids, m.trails[id].last)
	}
	b := []byte{'['}
	if f.kind == frameObject { // value, key, value, key, from the last
		b[0] = '{'
		pairs := make([][2]uint32, 0, len(ids)/2)
		for i := 0; i+1 < len(ids); i += 2 {
			pairs = append(pairs, [2]uint32{ids[i+1], ids[i]})
		}
		slices.SortFunc(pairs, func(x, y [2]uint32) int { return slices.Compare(x[:], y[:]) })
		ids = ids[:0]
		for _, p := range pairs {
			ids = append(ids, p[0], p[1])
		}
	}
	for _, id := range ids {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return m.value(string(b))
}

// canonicalNumber spells equal numbers alike: sign, digits without zeros at
// either end, and the exponent of the first of them.
func canonicalNumber(s string) string {
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	if plainInteger(s) {
		return sign + strings.TrimRight(s, "0") + "e" + strconv.Itoa(len(s))
	}
	exp := new(big.Int)
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exp.SetString(strings.TrimPrefix(s[i+1:], "+"), 10)
		s = s[:i]
	}
	whole, frac, _ := strings.Cut(s, ".")
	digits := whole + frac
	lead := len(digits) - len(strings.TrimLeft(digits, "0"))
	if lead == len(digits) {
		return "0"
	}
	exp.Add(exp, big.NewInt(int64(len(whole)-lead)))
	return sign + strings.TrimRight(digits[lead:], "0") + "e" + exp.String()
}

// plainInteger tells whether a number, its sign taken off, is written with
// digits alone, and isn't zero.
func plainInteger(s string) bool {
	if s[0] == '0' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
