package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A naiveEvent is what the twin finds: the same as Event, by splitting the
// whole stream into lines first.
type naiveEvent struct{ name, data string }

// naiveEvents parses a whole stream, line by line as the standard tells. rest
// says that something stands behind the last blank line.
func naiveEvents(stream string) (events []naiveEvent, rest bool) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	last := lines[len(lines)-1] // not ended
	lines = lines[:len(lines)-1]
	name, data, has, open := "", []string(nil), false, false
	for _, line := range lines {
		if line == "" {
			if has {
				events = append(events, naiveEvent{name, strings.Join(data, "\n")})
			}
			name, data, has, open = "", nil, false, false
			continue
		}
		open = true
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data, has = append(data, value), true
		case "event":
			name = value
		}
	}
	return events, open || last != ""
}

func readAll(r *Reader) (events []naiveEvent, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, naiveEvent{e.Name, string(e.Data)})
	}
}

func TestReader(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"data: a\n\ndata: [DONE]\n\n", `[{ a} { [DONE]}] EOF`},
		{"data: a\r\n\r\ndata:b\r\rdata:  c\n\n", `[{ a} { b} {  c}] EOF`},
		{"\ufeffdata: a\n\n", `[{ a}] EOF`},
		{"event: x\nid: 1\nretry: 5\ndata: a\ndata\ndata: b\n\n", "[{x a\n\nb}] EOF"},
		{": ping\n\n: pong\n\ndata: a\n\n", `[{ a}] EOF`},
		{"event: x\n\ndata: a\n\n", `[{ a}] EOF`},
		{"data:\n\n", `[{ }] EOF`},
		{"dat: a\ndata : b\nDATA: c\n\n", `[] EOF`},
		{"", `[] EOF`},
		{"\n\n\n", `[] EOF`},
		{"data: a\n\ndata: b", `[{ a}] event stream ended inside an event, 7 bytes into it: unexpected EOF`},
		{"data: a\n\ndata: b\n", `[{ a}] event stream ended inside an event, 8 bytes into it: unexpected EOF`},
		{"data: a\r\n\r", `[{ a}] EOF`},
		{"data: a\r\n\r\n", `[{ a}] EOF`},
		{"data: " + strings.Repeat("x", 200) + "\n\n", `[] event is longer than 100 bytes`},
		{"data: " + strings.Repeat("x", 200), `[] event is longer than 100 bytes`},
		{strings.Repeat("data: a\n\n", 100), `[` + strings.TrimSuffix(strings.Repeat("{ a} ", 100), " ") + `] EOF`},
	} {
		for _, cut := range []struct {
			name string
			wrap func(io.Reader) io.Reader
		}{{"whole", func(r io.Reader) io.Reader { return r }}, {"bytes", iotest.OneByteReader}, {"dataerr", iotest.DataErrReader}} {
			events, err := readAll(NewReader(cut.wrap(strings.NewReader(tt.in)), 100))
			if got := fmt.Sprintf("%v %v", events, err); got != tt.want {
				t.Errorf("%q, %s\n got %s\nwant %s", tt.in, cut.name, got, tt.want)
			}
		}
	}
}

func TestReaderError(t *testing.T) {
	broken := errors.New("reset")
	r := NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 100)
	_, err := readAll(r)
	var cut *CutError
	if !errors.As(err, &cut) || !errors.Is(err, broken) || cut.Pending != 8 {
		t.Errorf("got %v", err)
	}
	r = NewReader(io.MultiReader(strings.NewReader("data: a\n\n"), iotest.ErrReader(broken)), 100)
	if _, err = readAll(r); err != broken {
		t.Errorf("between events: %v", err)
	}
	r = NewReader(iotest.ErrReader(nil), 100)
	if _, err = readAll(r); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader without progress: %v", err)
	}
}

// An event is returned when its blank line is there, without another byte.
func TestReaderPrompt(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		pr, pw := io.Pipe()
		r := NewReader(pr, 100)
		for range 3 {
			go io.WriteString(pw, "data: a"+end)
			if e, err := r.Next(); err != nil || string(e.Data) != "a" {
				t.Errorf("%q: %q %v", end, e.Data, err)
			}
		}
		pw.Close()
	}
}

// However the stream is cut into reads, the events are those of the twin and
// the raw bytes of the blocks are the stream.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "data: a\r\n\r\n\r\ndata: b\r\r\n", "\ufeffdata: a\n\n", "\ufeff", "\xef\xbb", ":\n\n", "event: e\ndata\n\n",
		"data: a\n\ndata: b", "\r", "\n", "\r\n", "data: a\r\r\n\n", "\r\n\ufeff\n\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		want, rest := naiveEvents(string(stream))
		sizes := func() io.Reader { return &stepReader{stream, int(step%16) + 1} }
		got, err := readAll(NewReader(sizes(), 1<<20))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q in steps of %d\n got %q\nwant %q", stream, step%16+1, got, want)
		}
		var cut *CutError
		if errors.As(err, &cut) != rest || !rest && err != io.EOF {
			t.Fatalf("%q ends with %v; the twin has a rest: %v", stream, err, rest)
		}
		r := NewReader(sizes(), 1<<20)
		var raw []byte
		for {
			e, err := r.Block()
			if err != nil {
				break
			}
			raw = append(raw, e.Raw...)
		}
		if !bytes.HasPrefix(stream, raw) || !rest && len(raw) != len(stream) {
			t.Fatalf("%q: blocks are %q", stream, raw)
		}
		if rest && len(raw)+cut.Pending != len(stream) {
			t.Fatalf("%q: %d bytes in blocks, %d pending", stream, len(raw), cut.Pending)
		}
	})
}

type stepReader struct {
	b    []byte
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.b)
	r.b = r.b[n:]
	return n, nil
}

func BenchmarkReader(b *testing.B) {
	event := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
	stream := []byte(strings.Repeat(event, 1000))
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(stream), 1<<20)
		for {
			if _, err := r.Block(); err != nil {
				break
			}
		}
	}
}
