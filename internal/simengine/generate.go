package simengine

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/models/wire"
)

// generation is one request on its way to its choices.
type generation struct {
	prompt     []int32
	salt       string
	constraint *format
	native     *nativeTools // of the tools field; nil without it
	parallel   bool
	maxTokens  int
	stop       []string
	includeEnd bool // include_stop_str_in_output
	seed       uint64
}

// nativeTools is the tools field with its choice.
type nativeTools struct {
	tools    []*tool
	choice   string // auto, required, none or named
	named    string
	parallel bool
}

// forced reports whether a call must be made.
func (n *nativeTools) forced() bool {
	return n != nil && (n.choice == "required" || n.choice == "named")
}

// choice is what one choice will be: the text each token adds, and the end.
type choice struct {
	seq    *sequence
	pieces []string // of each output token
	text   string
	finish string // stop or length
	stop   string // the stop string that ended it
}

// plan writes the choice number index.
func (e *Engine) plan(g *generation, index int) (*choice, error) {
	tr, err := readTranscript(e.tok, e.family, g.prompt)
	if err != nil {
		return nil, err
	}
	h := fnv.New64a()
	var b [8]byte
	for _, v := range []uint64{e.cfg.Seed, g.seed, uint64(index)} {
		binary.LittleEndian.PutUint64(b[:], v)
		h.Write(b[:])
	}
	seed := h.Sum64()
	format := g.format(e)
	text := e.compose(g, tr, format, seed)
	if g.constraint == nil && !g.native.forced() {
		reasoning := ""
		if e.cfg.Reasoning && !tr.thought {
			reasoning = tr.think()
		}
		text = e.family.Spoken(tr.begun, reasoning, text)
	}
	c := &choice{finish: "stop"}
	ids := e.encodeOutput(text)
	if format != nil {
		ids = e.hold(format, tr, ids, seed, g.maxTokens)
	}
	c.read(e, ids)
	if i, s := firstStop(c.text, g.stop); i >= 0 {
		end := i
		if g.includeEnd {
			end += len(s)
		}
		c.cut(i+len(s), end)
		c.stop = s
		ids = ids[:len(c.pieces)]
	} else {
		ids = append(ids, e.eos)
		c.pieces = append(c.pieces, "")
	}
	if len(ids) > g.maxTokens {
		ids = ids[:g.maxTokens]
		c.pieces = c.pieces[:g.maxTokens]
		c.text = strings.Join(c.pieces, "")
		c.finish, c.stop = "length", ""
	}
	c.seq = &sequence{prompt: g.prompt, salt: g.salt, output: ids}
	return c, nil
}

// read fills the pieces: a token adds the runes that it completes.
func (c *choice) read(e *Engine, ids []int32) {
	var pending []byte
	for _, id := range ids {
		b, _, _ := e.tok.Token(id)
		pending = append(pending, b...)
		n := len(pending)
		for i := 1; i <= min(utf8.UTFMax-1, len(pending)); i++ {
			if c := pending[len(pending)-i]; utf8.RuneStart(c) {
				if c >= utf8.RuneSelf && !utf8.FullRune(pending[len(pending)-i:]) {
					n = len(pending) - i
				}
				break
			}
		}
		c.pieces = append(c.pieces, strings.ToValidUTF8(string(pending[:n]), "\ufffd"))
		pending = append(pending[:0], pending[n:]...)
	}
	c.text = strings.Join(c.pieces, "")
}

// cut ends the choice with the token that brings its text to length, and shows
// the first end bytes.
func (c *choice) cut(length, end int) {
	n := 0
	for i, p := range c.pieces {
		c.pieces[i] = p[:max(0, min(len(p), end-n))]
		n += len(p)
		if n >= length {
			c.pieces = c.pieces[:i+1]
			break
		}
	}
	c.text = strings.Join(c.pieces, "")
}

func firstStop(text string, stop []string) (at int, s string) {
	at = -1
	for _, x := range stop {
		if i := strings.Index(text, x); i >= 0 && (at < 0 || i < at || i == at && len(x) < len(s)) {
			at, s = i, x
		}
	}
	return at, s
}

func indexBefore(text, mark string, before int) int {
	i := strings.Index(text[:min(len(text), before+len(mark))], mark)
	if i >= before {
		return -1
	}
	return i
}

// format is what the answer is held to, nil if to nothing.
func (g *generation) format(e *Engine) *format {
	if n := g.native; n.forced() {
		return toolChoiceFormat(e.family.CallBegin, e.family.CallEnd(), n.tools, n.named, n.choice == "named" || !n.parallel)
	}
	return g.constraint
}

// compose writes the whole text of a choice.
func (e *Engine) compose(g *generation, tr *transcript, format *format, seed uint64) string {
	p := newPolicy(tr, seed, g.parallel)
	c := &constrained{p: p, rng: rand.New(rand.NewPCG(seed, 1)), tools: make(map[string]*tool)}
	for _, t := range tr.tools {
		c.tools[t.name] = t
	}
	if format != nil {
		c.write(format)
		return c.b.String()
	}
	var calls []wire.Call
	if g.native == nil || g.native.choice != "none" {
		for p.again() {
			t := p.best(tr.tools)
			if t == nil {
				break
			}
			args, ok := p.arguments(t)
			if !ok { // no value that fits: such a tool is not called
				p.used[t.name] = true
				continue
			}
			calls = append(calls, wire.Call{Name: t.name, Arguments: args})
			p.call(t)
		}
	}
	if len(calls) > 0 {
		return e.family.TurnText("", calls)
	}
	return p.answer()
}
