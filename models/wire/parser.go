package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// EventKind says what an [Event] is.
type EventKind uint8

const (
	// Text is content for the reader.
	Text EventKind = iota
	// Reasoning is what stood between the think tags at the start, or in a channel
	// of its own.
	Reasoning
	// CallStart opens call number Call; Name is its name, unescaped.
	CallStart
	// Arguments are bytes of the arguments: as generated where the family writes
	// them as JSON, else the JSON that they stand for.
	Arguments
	// CallEnd closes a call that is whole: its arguments and tags are closed.
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
	// ID is the id that the family spelled beside the name, at CallStart.
	ID string
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
// and loses up to the newlines of the family's Lead right before a call. A
// trigger always starts a call, in whatever tokens it was spelled.
//
// Calls. Any whitespace may stand where the family writes some between tags.
// In an Object the name, a string, and the arguments come in any order; other
// members are passed over. Anything else is Malformed, at the first byte that
// shows it, and what follows up to the closing tag is in Raw only. The zero
// Parser is not ready, see [Family.NewParser].
type Parser struct {
	// Schema gives the JSON Schema of a tool's arguments, nil if there is none.
	// Families of the form Parameters need it to tell text from numbers; it may be
	// set before the first Feed.
	Schema func(tool string) json.RawMessage

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
	name    string // of the current call
	started bool   // CallStart was given for the current call
	args    []byte
	at      int // bytes consumed
	closed  bool

	section bool     // the current call stands in a section
	listed  bool     // … in a JSON list
	counted int      // calls of the section, malformed ones too
	wants   []string // texts one of which comes next
	stage   stage    // what wants are for
	nth     int      // number of the closing tag that is awaited
	param   parameter
	header  []byte // of a message
}

type parseMode uint8

const (
	atStart      parseMode = iota // lead: whitespace, held: of the opening think tag
	inThought                     // lead: newlines, held: of the closing think tag
	afterThought                  // newlines
	inText                        // lead: whitespace before content, held: newlines and of a trigger
	inBare                        // held: an object that may be a call
	inCall                        // a JSON object
	awaiting                      // whitespace, held: of one of wants
	reading                       // held: a name, an id or a key up to one of wants
	inValue                       // held: of the end of a parameter
	skipped                       // rest of a malformed call, held: of the closing tag
	inHeader                      // header of a message, held: of the tag after it
	inMessage                     // held: of the tag after the message
)

// stage is what a parser does when one of its wants has come.
type stage uint8

const (
	sectionNext   stage = iota // Open, SectionEnd
	nameOpen                   // Name
	nameEnd                    // NameEnds
	idEnd                      // AfterID
	parameterOpen              // Parameter, the first of ends
	keyEnd                     // keyEnd
	valueOpen                  // valueOpen
	closing                    // ends, one by one
	listNext                   // "," and "]" between the objects of a list
)

// NewParser returns a parser for the generated text of one choice.
func (f *Family) NewParser() *Parser {
	p := &Parser{f: f, mode: inText}
	switch {
	case f.Calls.Form == Channels:
		p.mode = inHeader
	case f.ThinkOpen != "":
		p.mode = atStart
	}
	return p
}

// Thinking says that the generated text begins inside reasoning because the
// prompt ended with the family's ThinkOpen.
func (p *Parser) Thinking() {
	if p.mode == atStart {
		p.mode = inThought
	}
}

// Feed takes the next piece of text and returns what it decides. However the
// text is cut, the events are the same once neighbours of one kind and call are
// joined. The result is valid until the next call.
func (p *Parser) Feed(text string) []Event {
	p.evs = p.evs[:0]
	p.raw.WriteString(text)
	for i := 0; i < len(text); i++ {
		p.at++
		p.step(text[i])
	}
	p.flush(false)
	return p.evs
}

// Close says that no more text follows and returns what was held back. A call
// whose arguments are closed but whose tags are missing or cut is whole; any
// other open call gives no event, and Open reports it.
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
	case inText, inBare:
		if p.begun || !p.touched || !p.between(p.held) {
			p.emit(Text, p.lead)
			p.emit(Text, p.held)
		}
	case awaiting:
		if p.stage == closing {
			p.endCall()
		}
	case inHeader:
		p.closeHeader()
	case inMessage:
		p.emit(p.kind, p.held)
	}
	p.held = p.held[:0]
	p.flush(true)
	return p.evs
}

// Open reports whether the text so far ends inside a call.
func (p *Parser) Open() bool {
	switch p.mode {
	case inCall, reading, inValue, skipped:
		return true
	case awaiting:
		switch p.stage {
		case closing:
			return !p.closed
		case sectionNext:
			return p.counted == 0
		case listNext:
			return !p.closed
		}
		return true
	}
	return false
}

// Raw is all text fed so far, unchanged.
func (p *Parser) Raw() string { return p.raw.String() }

func (p *Parser) step(c byte) {
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
		p.stepText(c, true)
	case inText:
		p.stepText(c, true)
	case inBare:
		p.stepBare(c)
	case inCall:
		p.stepCall(c)
	case awaiting:
		p.stepAwaiting(c)
	case reading:
		p.stepReading(c)
	case inValue:
		p.stepValue(c)
	case skipped:
		p.stepSkipped(c)
	case inHeader:
		p.stepHeader(c)
	case inMessage:
		p.stepMessage(c)
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
	p.mode = inText
	p.again(p.held)
}

// again steps over bytes that were held back.
func (p *Parser) again(held []byte) {
	p.held = nil
	at := p.at
	for i, c := range held {
		p.at = at - len(held) + i + 1
		p.step(c)
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

// stepText takes a byte of text; bare says that it may begin a call that is an
// object without a tag before it.
func (p *Parser) stepText(c byte, bare bool) {
	s := &p.f.Calls
	if bare && s.bare() && c == '{' {
		switch {
		case p.begun:
			p.emit(Text, p.held)
		case p.between(p.held):
			p.lead = append(p.lead, p.held...)
		default:
			p.begin()
			p.emit(Text, p.held)
		}
		p.mode = inBare
		p.held = append(p.held[:0], c)
		return
	}
	p.held = append(p.held, c)
	which := -1
	tail := p.held[len(p.held):]
	for i, t := range s.starts {
		if k := keepPrefix(p.held, t); len(k) > len(tail) {
			tail = k
			if which = -1; len(k) == len(t) {
				which = i
			}
		}
	}
	n := len(p.held) - len(tail) // bytes before what may be a trigger
	if !p.begun {
		if p.between(p.held[:n]) {
			p.lead = append(p.lead, p.held[:n]...)
			p.held = append(p.held[:0], tail...)
			n = 0
		} else {
			p.begin()
		}
	}
	for i := 0; i < len(s.Lead) && n > 0 && p.held[n-1] == '\n'; i++ {
		n--
	}
	p.emit(Text, p.held[:n])
	if which < 0 {
		p.held = append(p.held[:0], p.held[n:]...)
		return
	}
	p.trigger = p.at - len(s.starts[which])
	p.open(which)
}

// begin gives out the whitespace before content.
func (p *Parser) begin() {
	p.begun = true
	p.emit(Text, p.lead)
	p.lead = p.lead[:0]
}

// between says that a text is nothing but what may stand between calls.
func (p *Parser) between(b []byte) bool {
	if sep := strings.TrimSpace(p.f.Calls.Join); sep != "" && p.touched {
		return len(bytes.Trim(b, " \t\r\n"+sep)) == 0
	}
	return blank(b)
}

// bare says that a call may begin without a tag.
func (s *Syntax) bare() bool { return s.Form == Object && s.Open == "" }

// stepBare follows an object in text until it shows whether it is a call: its
// first member is the name, its second the arguments.
func (p *Parser) stepBare(c byte) {
	p.held = append(p.held, c)
	held := p.held
	switch beginsCall(held, p.f.Calls.Keys) {
	case yes:
		p.trigger = p.at - len(held)
		p.open(0)
		p.again(held)
	case no:
		at := p.at
		p.mode, p.held = inText, nil
		p.at = at - len(held) + 1
		p.stepText(held[0], false)
		rest := held[1:]
		at0 := p.at
		for i, c := range rest {
			p.at = at0 + i + 1
			p.step(c)
		}
	}
}

type verdict uint8

const (
	no verdict = iota
	maybe
	yes
)

// beginsCall says whether b begins {"name": "…", "arguments": with one of keys.
func beginsCall(b []byte, keys []string) verdict {
	at := 0
	space := func() bool {
		for at < len(b) && blank(b[at:at+1]) {
			at++
		}
		return at < len(b)
	}
	take := func(texts ...string) verdict {
		if !space() {
			return maybe
		}
		for _, t := range texts {
			if strings.HasPrefix(string(b[at:]), t) {
				at += len(t)
				return yes
			}
			if strings.HasPrefix(t, string(b[at:])) {
				return maybe
			}
		}
		return no
	}
	for _, t := range []string{"{", `"name"`, ":", `"`} {
		if v := take(t); v != yes {
			return v
		}
	}
	for from := at; ; at++ {
		switch {
		case at-from > maxName || at < len(b) && b[at] < 0x20:
			return no
		case at >= len(b):
			return maybe
		case b[at] == '\\':
			at++
			continue
		case b[at] != '"':
			continue
		}
		break
	}
	at++
	if v := take(","); v != yes {
		return v
	}
	quoted := make([]string, len(keys))
	for i, k := range keys {
		quoted[i] = `"` + k + `"`
	}
	if v := take(quoted...); v != yes {
		return v
	}
	return take(":")
}

// open begins a call at trigger number which.
func (p *Parser) open(which int) {
	s := &p.f.Calls
	p.lead = p.lead[:0]
	p.reset()
	p.section, p.listed, p.counted = false, false, 0
	switch {
	case s.Section != "" && which == 0:
		p.section = true
		p.await(sectionNext, s.Open, s.SectionEnd)
	default:
		p.opened()
	}
}

func (p *Parser) reset() {
	p.held = p.held[:0]
	p.started, p.name, p.args = false, "", p.args[:0]
}

// opened goes on behind the tag that opens a call.
func (p *Parser) opened() {
	s := &p.f.Calls
	p.reset()
	p.counted++
	switch {
	case s.Form == Object:
		p.object(s.Keys)
	case strings.TrimSpace(s.Name) != "" && s.Form == Parameters:
		p.await(nameOpen, strings.TrimSpace(s.Name))
	default:
		p.read(nameEnd, s.NameEnds...)
	}
}

func (p *Parser) object(keys []string) {
	p.mode = inCall
	p.held = p.held[:0]
	p.json.reset(keys)
}

func (p *Parser) await(st stage, texts ...string) {
	p.mode, p.stage, p.wants = awaiting, st, texts
	p.held = p.held[:0]
}

func (p *Parser) read(st stage, texts ...string) {
	p.mode, p.stage, p.wants = reading, st, texts
	p.held = p.held[:0]
}

func (p *Parser) stepAwaiting(c byte) {
	if len(p.held) == 0 && blank([]byte{c}) {
		return
	}
	p.held = append(p.held, c)
	begins := false
	for i, w := range p.wants {
		if string(p.held) == w {
			p.arrived(i, nil)
			return
		}
		begins = begins || strings.HasPrefix(w, string(p.held))
	}
	if begins {
		return
	}
	held := p.held
	switch {
	case p.stage == closing && p.f.Calls.Form == Object:
		p.malformed(fmt.Sprintf("%q follows the object of the call", held[0]))
	case p.stage == closing:
		p.malformed(fmt.Sprintf("%q follows the arguments of the call", held[0]))
	default:
		p.malformed(fmt.Sprintf("%q where %s is expected", clip(held), strings.Join(p.wants, " or ")))
	}
	p.again(held)
}

func (p *Parser) stepReading(c byte) {
	p.held = append(p.held, c)
	if p.f.Calls.Listed && p.stage == nameEnd && strings.TrimSpace(string(p.held)) == "[" {
		p.listed = true
		p.object(p.f.Calls.Keys)
		return
	}
	var tail int
	for i, w := range p.wants {
		k := len(keepPrefix(p.held, w))
		if k == len(w) {
			p.arrived(i, p.held[:len(p.held)-k])
			return
		}
		tail = max(tail, k)
	}
	read := p.held[:len(p.held)-tail]
	what := map[stage]string{nameEnd: "name", idEnd: "id", keyEnd: "key"}[p.stage]
	switch {
	case len(read) > maxName:
		p.malformed(fmt.Sprintf("the %s is longer than %d bytes", what, maxName))
	case bytes.ContainsAny(read, "<>[]{}|"):
		held := p.held
		p.malformed(fmt.Sprintf("%q in the %s of the call", read[bytes.IndexAny(read, "<>[]{}|")], what))
		p.again(held)
	}
}

// arrived goes on when text number i of wants has come, behind what was read.
func (p *Parser) arrived(i int, read []byte) {
	s := &p.f.Calls
	switch p.stage {
	case sectionNext:
		if i == 0 {
			p.opened()
			return
		}
		if p.counted == 0 {
			p.malformed("the section holds no call")
		}
		p.text()
	case nameOpen:
		p.read(nameEnd, s.NameEnds...)
	case nameEnd:
		p.named(i, strings.TrimSpace(string(read)))
	case idEnd:
		p.start(p.name, strings.TrimSpace(string(read)))
		p.object(nil)
	case parameterOpen:
		if i == 0 {
			p.read(keyEnd, s.keyEnd())
			return
		}
		p.endParameters()
		p.close(1)
	case keyEnd:
		p.key(strings.TrimSpace(string(read)))
	case valueOpen:
		p.value()
	case closing:
		p.close(p.nth + 1)
	case listNext:
		if i == 0 {
			p.reset()
			p.counted++
			p.object(s.Keys)
			return
		}
		p.text()
	}
}

// named takes the name that text number i ended.
func (p *Parser) named(i int, name string) {
	s := &p.f.Calls
	id := ""
	if s.Numbered {
		at := strings.LastIndexByte(name, ':')
		if at < 0 || name[at+1:] == "" || strings.Trim(name[at+1:], "0123456789") != "" {
			p.malformed(fmt.Sprintf("the id %q is not of the form %sname%s", name, s.Prefix, ":0"))
			return
		}
		id, name = name, name[:at]
	}
	name = strings.TrimPrefix(name, s.Prefix)
	switch {
	case name == "":
		p.malformed("the name is empty")
	case s.Form == Parameters:
		p.start(name, "")
		p.emit(Arguments, []byte{'{'})
		p.param = parameter{seen: p.param.seen[:0]}
		ends := s.ends()
		switch s.NameEnds[i] {
		case s.Parameter:
			p.read(keyEnd, s.keyEnd())
		case ends[0]:
			p.endParameters()
			p.close(1)
		default:
			p.await(parameterOpen, s.Parameter, ends[0])
		}
	case s.AfterID != "" && !s.Numbered && s.NameEnds[i] != s.AfterID:
		p.name = name
		p.read(idEnd, s.AfterID)
	default:
		p.start(name, id)
		p.object(nil)
	}
}

func (p *Parser) start(name, id string) {
	p.flush(true)
	p.started = true
	p.evs = append(p.evs, Event{Kind: CallStart, Call: p.calls, Name: name, ID: id, Offset: p.trigger})
	p.name = name
}

// close expects the tags that end a call, from number n on.
func (p *Parser) close(n int) {
	ends := p.f.Calls.ends()
	if n < len(ends) {
		p.nth = n
		if p.f.Calls.Form == Channels {
			p.await(closing, messageEnds[:]...)
			return
		}
		p.await(closing, ends[n])
		return
	}
	p.endCall()
	p.next()
}

// next goes on behind a call.
func (p *Parser) next() {
	s := &p.f.Calls
	switch {
	case p.section:
		p.await(sectionNext, s.Open, s.SectionEnd)
	case s.Form == Channels:
		p.message()
	default:
		p.text()
	}
}

func (p *Parser) stepCall(c byte) {
	j := &p.json
	was := j.place
	if why := j.step(c); why != "" {
		p.malformed(why)
		p.again([]byte{c})
		return
	}
	if len(j.keys) == 0 {
		if len(j.stack) > 0 || j.done {
			p.emit(Arguments, []byte{c})
		}
		if j.done {
			p.close(0)
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
		p.start(j.name, "")
		p.emit(Arguments, p.args)
	}
	if j.done {
		switch {
		case !j.named:
			p.malformed(`the call has no "name"`)
		case !j.argued:
			p.malformed(fmt.Sprintf("the call has no %q", j.keys[0]))
		case p.listed:
			p.endCall()
			p.await(listNext, ",", "]")
		default:
			p.close(0)
		}
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

// stepSkipped passes over a malformed call: up to its closing tag, to the end
// of its section, or where calls have no closing tag to the next trigger.
func (p *Parser) stepSkipped(c byte) {
	s := &p.f.Calls
	p.held = append(p.held, c)
	tail := 0
	for i, t := range s.skips() {
		k := len(keepPrefix(p.held, t))
		if k < len(t) {
			tail = max(tail, k)
			continue
		}
		p.held = p.held[:0]
		switch {
		case s.Tag == "":
			p.trigger = p.at - len(t)
			p.open(i)
		case i == 0:
			p.next()
		default:
			p.text()
		}
		return
	}
	p.held = append(p.held[:0], p.held[len(p.held)-tail:]...)
}

// skips are the texts that end a malformed call.
func (s *Syntax) skips() []string {
	switch {
	case s.Tag == "":
		return s.starts
	case s.SectionEnd != "":
		return []string{s.Tag, s.SectionEnd}
	}
	return []string{s.Tag}
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

// clip is the beginning of a text for a message.
func clip(b []byte) []byte { return b[:min(len(b), 40)] }
