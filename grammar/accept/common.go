package accept

import (
	"strconv"
	"sync"

	"github.com/toolsidecar/sidecar/grammar/lexical"
)

// Machines of strings and numbers without names are common to all automata:
// what it takes to read an integer or a date is found out once. A machine that
// has grown large stays with those that have it, which count what is beyond the
// bound as theirs, and is made anew for others.

// A machine is given out while it has no more than commonBytes. Where a library
// gets another one, others go until it has no more than libraryBytes and
// maxCommon machines.
const (
	commonBytes  = 8 << 20
	libraryBytes = 32 << 20
	maxCommon    = 64
)

type lexer interface {
	Bytes() int
	Limit() *lexical.LimitError
}

// A library keeps machines by what they tell apart. It is safe for concurrent
// use.
type library[M lexer] struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]M
}

var (
	commonStrings library[*lexical.Strings]
	commonNumbers library[*lexical.Numbers]
)

// get gives the machine of a key; if there is none that is small enough and has
// reached no limit, what make makes.
func (l *library[M]) get(key string, make func() (M, error)) (M, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x, ok := l.byKey[key]; ok && fresh(x) {
		return x, nil
	}
	x, err := make()
	if err != nil {
		return x, err
	}
	if l.byKey == nil {
		l.byKey = map[string]M{}
	}
	size := 0
	for _, y := range l.byKey {
		size += y.Bytes()
	}
	for other, y := range l.byKey { // in any order
		if !fresh(y) || size > libraryBytes || len(l.byKey) >= maxCommon {
			size -= y.Bytes()
			delete(l.byKey, other)
		}
	}
	l.byKey[key] = x
	return x, nil
}

func fresh(x lexer) bool { return x.Bytes() <= commonBytes && x.Limit() == nil }

// held is what an automaton counts of a machine that it has.
func held(x lexer, common bool) int {
	n := x.Bytes()
	if common {
		n = max(0, n-commonBytes)
	}
	return n
}

// maxCommonKey is how long the key of a common machine may be: what lists
// values, or has bounds of a thousand digits, hardly comes again.
const maxCommonKey = 200

// machineOf gives a machine of predicates by their keys, and whether it is
// common.
func machineOf[M lexer](l *library[M], keys []string, lim lexical.Limits, make func() (M, error)) (M, bool, error) {
	key := strconv.AppendInt(nil, int64(lim.Bytes), 10)
	for _, k := range keys {
		key = append(strconv.AppendInt(append(key, ' '), int64(len(k)), 10), k...)
	}
	if len(key) > maxCommonKey {
		x, err := make()
		return x, false, err
	}
	x, err := l.get(string(key), make)
	return x, true, err
}
