package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// An Event is one server-sent event.
type Event struct {
	Name string // the event field; "" means message
	Data []byte // data lines joined by \n; valid until the next read
	Raw  []byte // the event's bytes as they came, its blank line included; valid until the next read
}

// A Reader splits a byte stream into events as the WHATWG HTML standard,
// section 9.2.6, parses them: lines end with \n, \r\n or \r, a leading byte
// order mark is dropped, lines that start with a colon are comments. The id
// and retry fields are read over.
//
// A Reader holds at most one event in memory and returns it as soon as its
// blank line has been read.
type Reader struct {
	r      io.Reader
	max    int
	buf    []byte // unread bytes are buf[from:]
	from   int
	err    error // of r, to be returned when buf is used up
	data   []byte
	began  bool // the first bytes have been looked at for a byte order mark
	skipLF bool // the last event ended with \r: a \n that follows is part of it
}

// A CutError says that a stream ended inside an event. It wraps the reader's
// error, io.ErrUnexpectedEOF when the stream simply ended.
type CutError struct {
	Pending int // bytes of the unfinished event
	Err     error
}

func (e *CutError) Error() string {
	return fmt.Sprintf("event stream ended inside an event, %d bytes into it: %v", e.Pending, e.Err)
}

func (e *CutError) Unwrap() error { return e.Err }

// An EventSizeError says that an event is longer than the reader allows.
type EventSizeError struct{ Max int }

func (e *EventSizeError) Error() string {
	return fmt.Sprintf("event is longer than %d bytes", e.Max)
}

// NewReader returns a Reader of r whose events, blank line included, are at
// most maxEvent bytes long.
func NewReader(r io.Reader, maxEvent int) *Reader {
	return &Reader{r: r, max: maxEvent, data: []byte{}} // data is not nil: an event may have empty data
}

// Next returns the next event that has data. It returns io.EOF at the end of
// the stream, *CutError when the stream ends inside an event, *EventSizeError
// for an event that is too long, and else the error of the underlying reader.
func (r *Reader) Next() (Event, error) {
	for {
		e, err := r.Block()
		if err != nil || e.Data != nil {
			return e, err
		}
	}
}

// Block is Next for those who hand the stream on: it also returns what stands
// between events (comments, blank lines), as an Event without Data. The Raws
// of all blocks together are the stream.
func (r *Reader) Block() (Event, error) {
	scanned := 0   // bytes of buf[from:] known to hold no end of the block
	lineStart := 0 // of the line being read
	data := r.data[:0]
	hasData := false
	name := ""
	for {
		b := r.buf[r.from:]
		if !r.began && (len(b) >= 3 || r.err != nil || len(b) > 0 && b[0] != 0xef || len(b) == 2 && b[1] != 0xbb) {
			r.began = true
			if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
				lineStart, scanned = 3, 3
			}
		}
		if r.began && r.skipLF && len(b) > 0 {
			r.skipLF = false
			if b[0] == '\n' {
				lineStart, scanned = 1, 1
			}
		}
		lf := -1 // position of the first \n from scanned on; len(b) if there is none
		for r.began {
			if lf < scanned { // lf is looked for once, however many lines end with \r before it
				if n := bytes.IndexByte(b[scanned:], '\n'); n >= 0 {
					lf = scanned + n
				} else {
					lf = len(b)
				}
			}
			limit := lf
			// A \r before that \n ends a line too.
			end, next := limit, limit+1
			if k := bytes.IndexByte(b[scanned:limit], '\r'); k >= 0 {
				end, next = scanned+k, scanned+k+1
				if next < len(b) && b[next] == '\n' {
					next++
				} else if next == len(b) && end > lineStart && r.err == nil {
					// \n may follow; a line that ends no block can wait for it.
					scanned = end
					break
				}
			} else if lf == len(b) {
				scanned = len(b)
				break
			}
			line := b[lineStart:end]
			if len(line) == 0 {
				r.skipLF = b[next-1] == '\r'
				e := Event{Name: name, Raw: b[:next:next]}
				if hasData {
					r.data = data
					e.Data = data[:len(data):len(data)]
				}
				if len(e.Raw) > r.max {
					return Event{}, &EventSizeError{r.max}
				}
				r.from += next
				return e, nil
			}
			lineStart, scanned = next, next
			field, value := splitField(line)
			switch string(field) {
			case "data":
				if hasData {
					data = append(data, '\n')
				}
				hasData = true
				data = append(data, value...)
			case "event":
				name = string(value)
			}
		}
		if len(b) > r.max {
			return Event{}, &EventSizeError{r.max}
		}
		if r.err != nil {
			return r.end(b, lineStart)
		}
		r.fill()
	}
}

// end is what Block returns when the underlying reader is done and b is left.
func (r *Reader) end(b []byte, lineStart int) (Event, error) {
	err := r.err
	switch {
	case len(b) == 0:
		return Event{}, err
	case lineStart == len(b):
		if len(b) == 1 && b[0] == '\n' || string(b) == "\xef\xbb\xbf" {
			r.from += len(b)
			return Event{Raw: b}, nil // the rest of a \r\n, or a lone byte order mark
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return Event{}, &CutError{len(b), err}
}

// fill reads once into buf, which it first makes room in.
func (r *Reader) fill() {
	if r.from == len(r.buf) {
		r.buf, r.from = r.buf[:0], 0
	}
	if len(r.buf) == cap(r.buf) {
		if r.from > 0 && r.from >= cap(r.buf)/2 {
			n := copy(r.buf, r.buf[r.from:])
			r.buf, r.from = r.buf[:n], 0
		} else {
			grown := make([]byte, len(r.buf)-r.from, max(2048, 2*cap(r.buf)))
			copy(grown, r.buf[r.from:])
			r.buf, r.from = grown, 0
		}
	}
	for tries := 0; ; tries++ {
		n, err := r.r.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+n]
		r.err = err
		if n > 0 || err != nil {
			return
		}
		if tries == 100 {
			r.err = io.ErrNoProgress
			return
		}
	}
}

// splitField cuts a line at its first colon and drops one space behind it. A
// comment has the empty field.
func splitField(line []byte) (field, value []byte) {
	field, value, _ = bytes.Cut(line, []byte(":"))
	return field, bytes.TrimPrefix(value, []byte(" "))
}
