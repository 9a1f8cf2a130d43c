package prefix

import (
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// masked is the spelling of prompts that become ids. Where a text spells an added
// token of the vocabulary, a placeholder takes its place until the turns are
// framed; then every added token in sight is the framing's own, and what lies
// between them is encoded with the spellings put back, as plain text. Bytes stay
// as they are, with one exception: the family's frame tags that are no tokens get
// the space of [wire.Family.NeutralResult] inside a frame.
type masked struct {
	f *wire.Family
	t *tokenizer.Tokenizer
}

// A placeholder is a private-use character, the id of a token and an end mark. A
// text that has one of these characters has it replaced by a placeholder too, with
// its own number below zero, so that none is taken for ours.
const (
	placeholder = "\uf8f0" // of a token that a text spells
	outputMark  = "\uf8f1" // of the generated ids of a turn
	thoughtMark = "\uf8f2" // of reasoning, to see whether the template keeps it
	markEnd     = "\uf8f3"
)

var markChars = []string{placeholder, outputMark, thoughtMark, markEnd}

func (m masked) turn(s string) string   { return s }
func (m masked) text(s string) string   { return m.mask(s, nil) }
func (m masked) result(s string) string { return m.f.NeutralResult(m.mask(s, nil)) }

// said: the template looks for reasoning in the text of assistant turns.
func (m masked) said(s string) string { return m.mask(s, []string{m.f.ThinkOpen, m.f.ThinkClose}) }

// generated: the tags of calls and of reasoning are the model's own.
func (m masked) generated(s string) string {
	return m.mask(s, append(m.f.CallTags(), m.f.ThinkOpen, m.f.ThinkClose))
}

// mask puts placeholders for all added tokens that s spells, but those in keep.
func (m masked) mask(s string, keep []string) string {
	var b strings.Builder
	done := 0 // bytes of s in b
	put := func(start, end, number int) {
		b.WriteString(s[done:start])
		b.WriteString(placeholder + strconv.Itoa(number) + markEnd)
		done = end
	}
	plain := func(end int) { // private-use characters of the text's own
		for done < end {
			at, which := end, -1
			for i, c := range markChars {
				if j := strings.Index(s[done:end], c); j >= 0 && done+j < at {
					at, which = done+j, i
				}
			}
			if which < 0 {
				return
			}
			put(at, at+len(markChars[which]), -1-which)
		}
	}
	for from := 0; ; {
		start, end, id, ok := m.t.NextAdded(s, from)
		if !ok {
			break
		}
		from = end
		if kept(s[start:end], keep) {
			continue
		}
		plain(start)
		put(start, end, int(id))
	}
	if done == 0 && !strings.Contains(s, "\uf8f0"[:2]) {
		return s
	}
	plain(len(s))
	b.WriteString(s[done:])
	return b.String()
}

func kept(spelling string, keep []string) bool {
	for _, k := range keep {
		if k == spelling {
			return true
		}
	}
	return false
}

// unmask puts the spellings back.
func (m masked) unmask(s string) string {
	if !strings.Contains(s, placeholder) {
		return s
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, placeholder)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		number, after, _ := strings.Cut(rest, markEnd)
		n, err := strconv.Atoi(number)
		switch {
		case err != nil:
			panic("prefix: a placeholder without its number") // only mask writes them
		case n < 0:
			b.WriteString(markChars[-1-n])
		default:
			spelled, _, _ := m.t.Token(int32(n))
			b.Write(spelled)
		}
		s = after
	}
}
