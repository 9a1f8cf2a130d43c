package lexical

import "fmt"

// Limits bound what a machine may keep. Zero fields have the defaults named.
type Limits struct {
	Bytes  int // of memory for states and what they are made of; 16 MiB
	Width  int // terms that one state of one pattern may be made of; 8192
	Work   int // terms that the making of states may look at, some 0.1 µs each; 1 << 20
	Kept   int // bytes of text kept for a format that is decided at the end; 4096
	Visits int // steps that one call of Reachable may take; 4096
	Digits int // digits of a number that are told apart; 65536
}

func (l Limits) orDefault() Limits {
	for _, f := range [...]struct {
		at *int
		to int
	}{{&l.Bytes, 16 << 20}, {&l.Width, 8192}, {&l.Work, 1 << 20}, {&l.Kept, 1 << 12}, {&l.Visits, 4096}, {&l.Digits, 1 << 16}} {
		if *f.at <= 0 {
			*f.at = f.to
		}
	}
	return l
}

// A LimitError names the limit that a machine has reached.
type LimitError struct {
	What string // the field of Limits, in lower case
	Max  int
}

func (e *LimitError) Error() string { return fmt.Sprintf("more than %d %s", e.Max, e.What) }

// State is a state of one machine.
type State uint32

const (
	// Dead: the text is not what the machine reads.
	Dead State = 0
	// Lost: a limit was reached, and what the text is can't be told. The
	// machine's Limit says which.
	Lost State = 1
)
