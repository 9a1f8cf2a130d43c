package wire

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// EventKind says what an [Event] is.
type EventKind uint8

const (
	// Text is content for the reader.
	Text EventKind = iota
	// Reasoning is what stood between the think tags at the start.
	Reasoning
	// CallStart opens call number Call; Name is its name, unescaped.
	CallStart
	// Arguments are bytes of the value of "arguments", as generated.
	Arguments
	// CallEnd closes a call that is whole: its object and tag are closed.
	CallEnd
	// Malformed says why a call can't be understood. If CallStart was seen for
	// it, Call is its number and no CallEnd follows; else Call is -1.
	Malformed
)

func (k EventKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

var kindNames = [...]string{"text", "reasoning", "call start", "arguments", "call end", "malformed"}

// Event is one piece of a parsed answer.
type Event struct {
	Kind EventKind
	// Text is the content, reasoning or argument bytes, or why a call is
	// malformed. It never ends inside a UTF-8 sequence that can still be completed.
	Text string
	// Call counts the calls of the answer from 0.
	Call int
	// Name is the name of the called tool, at CallStart.
	Name string
	// Offset is the byte of Raw at which the trigger of the call begins, at
	// CallStart and Malformed, or after which the call ends, at CallEnd.
	Offset int
}

// Parser reads the generated text of one choice, piece by piece.
//
// Text. Reasoning is recognised at the start only, whitespace before its tag
// and newlines inside its ends and after it are framing; nothing in it is a
// call. A stretch of text between the start or a call and the next call or the
// end is content; it is dropped when it touches a call and is only whitespace,
// and loses one newline right before a call. A trigger always starts a call, in
// whatever tokens it was spelled.
//
// Calls. Between the tags stands one JSON object with the members "name", a
// string, and "arguments", in any order, amid any whitespace; other members are
// passed over. Anything else is Malformed, at the first byte that shows it, and
// what follows up to the closing tag is in Raw only. The zero Parser is not
// ready, see [Family.NewParser].
type Parser struct {
	f    *Family
	raw  strings.Builder
	mode parseMode

	lead []byte // whitespace not yet decided on, see the modes
	held []byte // bytes after it that may begin a tag
	out  []byte // decided bytes of the event being gathered
	kind EventKind
	evs  []Event

	touched bool // a call stands before the current text
	begun   bool // the current text has content

	calls   int
	trigger int // offset of the current trigger
	json    jsonMachine
	started bool // CallStart was given for the current call
	args    []byte
	at      int // bytes consumed
	closed  bool
}

type parseMode uint8

const (
	atStart      parseMode = iota // lead: whitespace, held: of the opening think tag
	inThought                     // lead: newlines, held: of the closing think tag
	afterThought                  // newlines
	inText                        // lead: whitespace before content, held: a newline and of the trigger
	inCall                        // the JSON object
	atTag                         // whitespace, held: of the closing tag
	skipped                       // rest of a malformed call, held: of the closing tag
)

// NewParser returns a parser for the generated text of one choice.
func (f *Family) NewParser() *Parser {
	p := &Parser{f: f, mode: inText}
	if f.ThinkOpen != "" {
		p.mode = atStart
	}
	return p
}

// Feed takes the next piece of text and returns what it decides. However the
// text is cut, the events are the same once neighbours of one kind and call are
// joined. The result is valid until the next call.
func (p *Parser) Feed(text string) []Event {
	p.evs = p.evs[:0]
	p.raw.WriteString(text)
	for i := 0; i < len(text); i++ {
		p.step(text[i])
	}
	p.flush(false)
	return p.evs
}

// Close says that no more text follows and returns what was held back. A call
// whose object is closed but whose tag is missing or cut is whole; any other
// open call gives no event, and Open reports it.
func (p *Parser) Close() []Event {
	p.evs = p.evs[:0]
	if p.closed {
		return nil
	}
	p.closed = true
	switch p.mode {
	case atStart:
		p.emit(Text, p.lead)
		p.emit(Text, p.held)
	case inThought:
		if len(p.held) > 0 {
			p.emitThought(p.held)
		}
	case inText:
		if p.begun || !p.touched || !blank(p.held) {
			p.emit(Text, p.lead)
			p.emit(Text, p.held)
		}
	case atTag:
		p.endCall()
	}
	p.held = p.held[:0]
	p.flush(true)
	return p.evs
}

// Open reports whether the text so far ends inside a call.
func (p *Parser) Open() bool {
	switch p.mode {
	case inCall, skipped:
		return true
	case atTag:
		return !p.closed
	}
	return false
}

// Raw is all text fed so far, unchanged.
func (p *Parser) Raw() string { return p.raw.String() }

func (p *Parser) step(c byte) {
	p.at++
	switch p.mode {
	case atStart:
		p.stepStart(c)
	case inThought:
		p.stepThought(c)
	case afterThought:
		if c == '\n' {
			return
		}
		p.mode = inText
		p.stepText(c)
	case inText:
		p.stepText(c)
	case inCall:
		p.stepCall(c)
	case atTag:
		p.stepTag(c)
	case skipped:
		p.held = append(p.held, c)
		p.held = keepPrefix(p.held, p.f.CallTag)
		if len(p.held) == len(p.f.CallTag) {
			p.text()
		}
	}
}

// text turns to the text after a call.
func (p *Parser) text() {
	p.mode, p.touched, p.begun = inText, true, false
	p.lead, p.held = p.lead[:0], p.held[:0]
}

func (p *Parser) stepStart(c byte) {
	if len(p.held) == 0 && blank([]byte{c}) {
		p.lead = append(p.lead, c)
		return
	}
	p.held = append(p.held, c)
	if string(p.held) == p.f.ThinkOpen {
		p.mode = inThought
		p.lead, p.held = p.lead[:0], p.held[:0]
		return
	}
	if strings.HasPrefix(p.f.ThinkOpen, string(p.held)) {
		return
	}
	again := p.held
	p.mode, p.held = inText, nil
	for _, c := range again {
		p.stepText(c)
	}
}

func (p *Parser) stepThought(c byte) {
	if len(p.held) == 0 && c == '\n' {
		p.lead = append(p.lead, c)
		return
	}
	p.held = append(p.held, c)
	if string(p.held) == p.f.ThinkClose {
		p.mode, p.begun = afterThought, false
		p.lead, p.held = p.lead[:0], p.held[:0]
		return
	}
	if strings.HasPrefix(p.f.ThinkClose, string(p.held)) {
		return
	}
	tail := keepPrefix(p.held, p.f.ThinkClose)
	part := p.held[:len(p.held)-len(tail)]
	body := bytes.TrimRight(part, "\n")
	p.emitThought(body)
	p.lead = append(p.lead[:0], part[len(body):]...)
	p.held = append(p.held[:0], tail...)
}

// emitThought emits reasoning and the newlines before it, unless they stand at
// its start.
func (p *Parser) emitThought(b []byte) {
	if p.begun {
		p.emit(Reasoning, p.lead)
	}
	p.begun = true
	p.emit(Reasoning, b)
}

func (p *Parser) stepText(c byte) {
	p.held = append(p.held, c)
	trigger := p.f.CallOpen
	tail := keepPrefix(p.held, trigger)
	n := len(p.held) - len(tail) // bytes before what may be the trigger
	if !p.begun {
		if blank(p.held[:n]) {
			p.lead = append(p.lead, p.held[:n]...)
			p.held = append(p.held[:0], tail...)
			n = 0
		} else {
			p.begun = true
			p.emit(Text, p.lead)
			p.lead = p.lead[:0]
		}
	}
	if n > 0 && p.held[n-1] == '\n' {
		n--
	}
	p.emit(Text, p.held[:n])
	if len(tail) < len(trigger) {
		p.held = append(p.held[:0], p.held[n:]...)
		return
	}
	p.mode = inCall
	p.lead, p.held = p.lead[:0], p.held[:0]
	p.trigger = p.at - len(trigger)
	p.json.reset()
	p.started, p.args = false, p.args[:0]
}

func (p *Parser) stepCall(c byte) {
	j := &p.json
	was := j.place
	if why := j.step(c); why != "" {
		p.malformed(why)
		if c == p.f.CallTag[0] {
			p.held = append(p.held, c)
		}
		return
	}
	if was == placeArguments && j.valueByte {
		if p.started {
			p.emit(Arguments, []byte{c})
		} else {
			p.args = append(p.args, c)
		}
	}
	if !p.started && j.named {
		p.flush(true)
		p.started = true
		p.evs = append(p.evs, Event{Kind: CallStart, Call: p.calls, Name: j.name, Offset: p.trigger})
		p.emit(Arguments, p.args)
	}
	if j.done {
		if !j.named {
			p.malformed(`the call has no "name"`)
		} else if !j.argued {
			p.malformed(`the call has no "arguments"`)
		} else {
			p.mode = atTag
		}
	}
}

func (p *Parser) stepTag(c byte) {
	if len(p.held) == 0 && blank([]byte{c}) {
		return
	}
	p.held = append(p.held, c)
	switch {
	case string(p.held) == p.f.CallTag:
		p.endCall()
		p.text()
	case !strings.HasPrefix(p.f.CallTag, string(p.held)):
		held := p.held
		p.malformed(fmt.Sprintf("%q follows the object of the call", held[0]))
		p.held = keepPrefix(held, p.f.CallTag)
	}
}

func (p *Parser) endCall() {
	p.flush(true)
	p.evs = append(p.evs, Event{Kind: CallEnd, Call: p.calls, Offset: p.at})
	p.calls++
	p.started = false
}

func (p *Parser) malformed(why string) {
	p.flush(true)
	n := -1
	if p.started {
		n = p.calls
		p.calls++
		p.started = false
	}
	p.evs = append(p.evs, Event{Kind: Malformed, Text: why, Call: n, Offset: p.trigger})
	p.mode, p.held = skipped, nil
}

// emit gathers bytes of one kind.
func (p *Parser) emit(k EventKind, b []byte) {
	if len(b) == 0 {
		return
	}
	if len(p.out) > 0 && p.kind != k {
		p.flush(true)
	}
	p.kind = k
	p.out = append(p.out, b...)
}

// flush hands out what was gathered, unless final without a rune that may still
// be completed.
func (p *Parser) flush(final bool) {
	n := len(p.out)
	if !final {
		n -= partialRune(p.out)
	}
	if n == 0 {
		return
	}
	e := Event{Kind: p.kind, Text: string(p.out[:n])}
	if p.kind == Arguments {
		e.Call = p.calls
	}
	p.evs = append(p.evs, e)
	p.out = append(p.out[:0], p.out[n:]...)
}

// partialRune is the length of the unfinished UTF-8 sequence at the end of b.
func partialRune(b []byte) int {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// keepPrefix is the longest suffix of b that is a prefix of tag.
func keepPrefix(b []byte, tag string) []byte {
	for n := min(len(b), len(tag)); n > 0; n-- {
		if string(b[len(b)-n:]) == tag[:n] {
			return b[len(b)-n:]
		}
	}
	return b[len(b):]
}

func blank(b []byte) bool { return len(bytes.Trim(b, " \t\r\n")) == 0 }
