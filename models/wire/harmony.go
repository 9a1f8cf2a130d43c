package wire

import (
	"fmt"
	"strings"
)

// The tags of messages in channels. A message is
//
//	<|start|>assistant to=RECIPIENT<|channel|>CHANNEL <|constrain|>json<|message|>…<|end|>
//
// where the recipient may stand behind the channel too. The prompt ends with
// <|start|>assistant, so the generated text begins behind it.
const (
	messageStart = "<|start|>"
	channelTag   = "<|channel|>"
	messageTag   = "<|message|>"
)

// messageEnds are what ends a message; <|call|> ends one to a tool.
var messageEnds = [...]string{"<|call|>", "<|end|>", "<|return|>"}

// afterMessage ends the text of a message too, when the tag before it is missing.
var afterMessage = [...]string{messageEnds[0], messageEnds[1], messageEnds[2], messageStart, channelTag}

// maxHeader is how many bytes of a header are read: a role, a recipient, a
// channel, a format.
const maxHeader = maxName + 256

// message turns to the header of the next message.
func (p *Parser) message() {
	p.mode, p.header, p.held = inHeader, p.header[:0], p.held[:0]
}

func (p *Parser) stepHeader(c byte) {
	if len(p.header) == 0 {
		p.trigger = p.at - 1
	}
	p.header = append(p.header, c)
	h := string(p.header)
	switch {
	case strings.HasSuffix(h, messageTag):
		p.begins(strings.TrimSuffix(h, messageTag))
	case len(h) > maxHeader || plain(h):
		// No header: text as a server without the tags leaves it.
		p.mode, p.kind = inMessage, Text
		p.held = append(p.held[:0], h[:len(h)-1]...)
		p.stepMessage(c)
	}
}

// plain says that a header can't become one.
func plain(h string) bool {
	h = strings.TrimLeft(h, " \n")
	for _, begin := range []string{"<|", "to=", "assistant"} {
		if n := min(len(begin), len(h)); h[:n] == begin[:n] {
			return false
		}
	}
	return true
}

func (p *Parser) closeHeader() {
	if h := string(p.header); strings.TrimSpace(h) != "" && !strings.Contains(h, "<|") && !strings.Contains(h, "to=") {
		p.emit(Text, p.header)
	} else if strings.Contains(h, "to=") {
		p.mode = skipped // the call is cut
	}
}

// begins reads a header and goes on to what it announces.
func (p *Parser) begins(header string) {
	p.reset()
	_, channel, _ := strings.Cut(header, channelTag)
	channel = strings.TrimLeft(channel, " ")
	if i := strings.IndexAny(channel, " <\n"); i >= 0 {
		channel = channel[:i]
	}
	if _, to, ok := strings.Cut(header, "to="); ok {
		if i := strings.IndexAny(to, " <\n"); i >= 0 {
			to = to[:i]
		}
		name, ok := strings.CutPrefix(to, p.f.Calls.Prefix)
		if !ok || name == "" {
			p.malformed(fmt.Sprintf("a message to %q, which is no tool", clip([]byte(to))))
			return
		}
		p.start(name, "")
		p.object(nil)
		return
	}
	p.mode = inMessage
	p.flush(true)
	p.kind = Text
	if channel == "analysis" {
		p.kind = Reasoning
	}
}

func (p *Parser) stepMessage(c byte) {
	p.held = append(p.held, c)
	tail := 0
	for i, t := range afterMessage {
		k := len(keepPrefix(p.held, t))
		if k < len(t) {
			tail = max(tail, k)
			continue
		}
		p.emit(p.kind, p.held[:len(p.held)-k])
		p.flush(true)
		p.message()
		if i >= len(messageEnds) {
			p.header = append(p.header, t...)
			p.trigger = p.at - k
		}
		return
	}
	n := len(p.held) - tail
	p.emit(p.kind, p.held[:n])
	p.held = append(p.held[:0], p.held[n:]...)
}
