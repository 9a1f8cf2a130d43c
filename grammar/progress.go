package grammar

import "fmt"

// A Watch follows the bytes of a reply and says when it is going nowhere: blanks
// without end between tokens of JSON, digits without end, or the same few bytes
// over and over. It is what a decoder falls into when its constraint leaves one
// way open too long. The zero value watches by the default limits.
//
// It reads no clock: how long an engine may be silent is for its caller to say.
type Watch struct {
	// Blanks is how many white space bytes may stand between two tokens of
	// JSON; 0 for 64.
	Blanks int
	// Digits is how many a number may have; 0 for 64.
	Digits int
	// Repeats is how many bytes a pattern of up to 64 bytes may go on to repeat
	// itself; 0 for 4,096. Rows of a table and lines of dashes stay below that.
	Repeats int

	offset   int
	inString bool
	escaped  bool
	blanks   int
	digits   int
	last     [maxPeriod]byte // the last bytes, as a ring
	runs     [maxPeriod + 1]int
	err      error
}

// maxPeriod is the longest pattern that is noticed, in bytes.
const maxPeriod = 64

// A StallError says where a reply stopped making progress.
type StallError struct {
	Offset int    // of the byte at which it was noticed
	What   string // "blanks", "digits" or "repeats"
	Bytes  int    // how many of them there are
}

func (e *StallError) Error() string {
	switch e.What {
	case "blanks":
		return fmt.Sprintf("byte %d of the reply: %d blanks in a row", e.Offset, e.Bytes)
	case "digits":
		return fmt.Sprintf("byte %d of the reply: a number of %d digits", e.Offset, e.Bytes)
	}
	return fmt.Sprintf("byte %d of the reply: the same again for %d bytes", e.Offset, e.Bytes)
}

// Feed takes the next bytes of arguments. Once it has found a stall it gives
// the same *StallError for ever. It costs about 30 ns a byte.
func (w *Watch) Feed(p []byte) error {
	if w.err != nil {
		return w.err
	}
	limit := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	blanks, digits, repeats := limit(w.Blanks, 64), limit(w.Digits, 64), limit(w.Repeats, 4096)
	for _, c := range p {
		w.token(c)
		longest := 0
		for period := 1; period <= maxPeriod; period++ {
			if period > w.offset || w.last[(w.offset-period)&(maxPeriod-1)] != c {
				w.runs[period] = 0
			} else if w.runs[period]++; w.runs[period] > longest {
				longest = w.runs[period]
			}
		}
		w.last[w.offset&(maxPeriod-1)] = c
		switch {
		case w.blanks > blanks:
			w.err = &StallError{w.offset, "blanks", w.blanks}
		case w.digits > digits:
			w.err = &StallError{w.offset, "digits", w.digits}
		case longest > repeats:
			w.err = &StallError{w.offset, "repeats", longest}
		}
		w.offset++
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// token counts what stands outside of strings.
func (w *Watch) token(c byte) {
	if w.inString {
		w.inString = w.escaped || c != '"'
		w.escaped = !w.escaped && c == '\\'
		return
	}
	switch {
	case c == ' ' || c == '\n' || c == '\t' || c == '\r':
		w.blanks++
	case c >= '0' && c <= '9':
		w.digits++
		w.blanks = 0
	case c == '"':
		w.inString = true
		fallthrough
	default:
		w.blanks, w.digits = 0, 0
	}
	if w.blanks > 0 {
		w.digits = 0
	}
}
