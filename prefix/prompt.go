package prefix

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// Prompt is a conversation as token ids: those that the engine was sent and
// generated before, as far as the ledger holds them, and the tail in the family's
// framing.
type Prompt struct {
	IDs []int32
	// Replayed is how many of IDs come from the ledger.
	Replayed int
	// Dropped is where in IDs the first reasoning is missing that the reply before
	// was generated with, because the template leaves it out since a new user turn;
	// -1 when none is.
	Dropped int

	sum, from Key // as Tokens will have them
	head      int // where the ids behind the last reply begin
}

// SeamError is a place where ids can't be joined: text goes on there, and its
// tokens may depend on what stands before.
type SeamError struct{ After string }

func (e *SeamError) Error() string {
	return fmt.Sprintf("prefix: no control token follows a generated turn, but %q", e.After)
}

var errTemplate = errors.New("prefix: the family's template does not keep the texts of turns")

// Prompt lays the conversation out as ids of the vocabulary t:
//
//	ids of the ledger's last prompt, generated ids, our tail
//
// Ids are joined where the family's framing has a control token, which no token of
// a text can reach across. The template is followed where it leaves reasoning out;
// the ids behind the reasoning stay as they were generated.
//
// In the tail, framing is encoded as the engine encodes a rendered prompt, and all
// text of clients, tools and results with added tokens off: what merely spells a
// control token is text. For texts that spell none the ids are those of the
// rendered prompt. thinking is the template's enable_thinking, nil where it is not
// set; what a prompt has on its account in front of a reply stays there.
func (c *Conversation) Prompt(f *wire.Family, t *tokenizer.Tokenizer, thinking *bool) (*Prompt, error) {
	m := masked{f, t}
	turns := c.layout(f, m)
	msgs := make([]wire.Message, len(turns))
	sums := make([]Key, len(turns)) // of the turns in front
	h := sha256.New()
	for i := range turns {
		u := &turns[i]
		sums[i] = Key(h.Sum(nil))
		u.hash(h)
		msgs[i] = wire.Message{Role: u.Role, Content: u.Text, Reasoning: u.reasoning}
		if u.output != nil {
			msgs[i].Content = u.closes(f, mark(thoughtMark, i)) + mark(outputMark, i)
		}
	}
	p := &Prompt{Dropped: -1, sum: Key(h.Sum(nil))}
	opt := wire.Options{AddGenerationPrompt: true, EnableThinking: thinking}
	rest := string(f.Render(nil, msgs, nil, opt))

	// Replies whose ids are known, up to the first that is not what was recorded.
	replayed := map[int]bool{}
	last := -1
	for i, u := range turns {
		if u.reply == nil || u.output == nil {
			continue
		}
		if u.reply.From != p.from || u.reply.Sum != sums[i] {
			break
		}
		replayed[i], p.from, last = true, u.reply.Sum, i
	}
	var dropped []int       // turns that aren't as they were generated
	starts := map[int]int{} // and from where on
	latest := -1            // the last reply with ids
	for i := range turns {
		u := &turns[i]
		if u.output == nil {
			continue
		}
		framing, after, ok := strings.Cut(rest, mark(outputMark, i))
		if !ok {
			return nil, errTemplate
		}
		rest = after
		if i < last && !replayed[i] {
			continue // a search of the model, within the Head of the reply to come
		}
		output := u.output.Append(nil)
		prompt := f.AnswerPrompt(msgs[:i], opt)
		framing, keeps := u.kept(f, framing, prompt, mark(thoughtMark, i))
		if !keeps {
			output = u.withoutReasoning(m, output)
		}
		if replayed[i] {
			p.IDs = u.reply.Head.Append(p.IDs)
		} else if err := p.encode(m, framing); err != nil {
			return nil, err
		}
		starts[i] = len(p.IDs)
		if f.NoThought != "" {
			if at := p.past(m, framing, prompt, replayed[i]); at >= 0 {
				starts[i], keeps = at, false
			}
		}
		if !keeps {
			dropped = append(dropped, i)
		}
		p.IDs = append(p.IDs, output...)
		if i == last {
			p.Replayed = len(p.IDs)
		}
		if u.reply != nil {
			p.head, latest = len(p.IDs), i
			if i > last {
				p.from = sums[i]
			}
		}
	}
	if err := p.encode(m, rest); err != nil {
		return nil, err
	}
	if len(dropped) > 0 && latest >= 0 {
		before := string(f.Render(nil, msgs[:latest], nil, opt))
		for _, i := range dropped {
			if i >= latest || strings.Contains(before, mark(thoughtMark, i)) {
				p.Dropped = starts[i]
				break
			}
		}
	}
	return p, nil
}

// encode appends a text between generated turns: framing, and masked texts.
func (p *Prompt) encode(m masked, text string) error {
	if len(p.IDs) > 0 {
		if at, _, _, ok := m.t.NextAdded(text, 0); !ok || at != 0 {
			return &SeamError{text[:min(len(text), 32)]}
		}
	}
	p.IDs = m.t.EncodeMasked(p.IDs, text, m.unmask)
	return nil
}

func mark(kind string, i int) string { return kind + strconv.Itoa(i) + markEnd }

// hash adds what the turn says.
func (u *Turn) hash(h hash.Hash) {
	field(h, u.Role)
	field(h, u.Text)
	field(h, u.reasoning)
	var b [1]byte
	if u.Generated {
		b[0] = 1
	}
	h.Write(b[:])
}

// past gives the prompt for an answer that the ids end with the form that the
// template gives it in front of a past turn, which framing ends with. It returns from
// where on the two differ, -1 when they are the same.
func (p *Prompt) past(m masked, framing, prompt string, replayed bool) int {
	_, end, _, ok := m.t.NextAdded(prompt, 0)
	if !ok {
		return -1
	}
	i := strings.LastIndex(framing, prompt[:end])
	if i < 0 {
		return -1
	}
	was, is := m.t.Encode(nil, prompt), m.t.Encode(nil, framing[i:])
	n := Common(was, is)
	if n == len(was) && n == len(is) {
		return -1
	}
	if !replayed {
		return len(p.IDs) - len(is) + n
	}
	at := len(p.IDs) - len(was) + n
	p.IDs = append(p.IDs[:at], is[n:]...)
	return at
}

// thinks says whether a generated turn has reasoning, be it none that was closed.
func (u *Turn) thinks(f *wire.Family) bool {
	return f.ThinkClose != "" && strings.Contains(u.Text, f.ThinkClose)
}

// closes is the reasoning of a generated turn as it stands in front of the text, with
// a mark in its place; "" for none. Without words in it there is nothing to mark.
func (u *Turn) closes(f *wire.Family, mark string) string {
	if !u.thinks(f) {
		return ""
	}
	if _, reasoning := f.SplitReasoning(u.Text); strings.TrimSpace(reasoning) == "" {
		mark = ""
	}
	return f.ThoughtOpen + mark + f.ThoughtClose
}

// kept takes off the framing in front of a generated turn what the model wrote
// itself behind the prompt for its answer, and says whether the template keeps its
// reasoning.
func (u *Turn) kept(f *wire.Family, framing, prompt, mark string) (string, bool) {
	if !u.thinks(f) {
		return strings.TrimSuffix(framing, f.TurnLead), true
	}
	if before, _, ok := strings.Cut(framing, mark); ok {
		if f.ThinkInPrompt && strings.HasSuffix(prompt, f.ThinkOpen) {
			return before, true
		}
		return strings.TrimSuffix(before, f.ThoughtOpen), true
	}
	return strings.CutSuffix(framing, u.closes(f, ""))
}

// withoutReasoning is what follows the reasoning in the ids of a turn, without the
// newlines in front, as templates leave them out. Where the reasoning does not end
// with its own token and whole tokens of newlines, the text is encoded anew.
func (u *Turn) withoutReasoning(m masked, output []int32) []int32 {
	if id, ok := m.t.ID(m.f.ThinkClose); ok {
		if i := lastIndex(output, id); i >= 0 {
			rest := output[i+1:]
			for len(rest) > 0 {
				b, _, _ := m.t.Token(rest[0])
				if len(b) == 0 || len(bytes.TrimLeft(b, "\n")) > 0 {
					break
				}
				rest = rest[1:]
			}
			if len(rest) == 0 {
				return nil
			}
			if b, _, _ := m.t.Token(rest[0]); len(b) > 0 && b[0] != '\n' {
				return rest
			}
		}
	}
	text := u.Text[strings.LastIndex(u.Text, m.f.ThinkClose)+len(m.f.ThinkClose):]
	return m.t.EncodeMasked(nil, strings.TrimLeft(text, "\n"), m.unmask)
}

func lastIndex(ids []int32, id int32) int {
	for i := len(ids) - 1; i >= 0; i-- {
		if ids[i] == id {
			return i
		}
	}
	return -1
}

// Output makes the ids of a turn from what the engine generated: those that spell
// reasoning and text, and where the text ends within one, its beginning as tokens
// of their own. The ids of what follows, a stop token or what is passed over, are
// left out.
//
// It fails when the ids don't spell the text: the engine left out a control token
// that was generated, or an id is not in the vocabulary. Then text has to do.
func Output(f *wire.Family, t *tokenizer.Tokenizer, generated []int32, reasoning, text string) ([]int32, error) {
	ids := generated
	var all strings.Builder
	for i, id := range generated {
		b, special, ok := t.Token(id)
		if !ok {
			if i == len(generated)-1 { // a stop token may be padding of the vocabulary
				ids = generated[:i]
				break
			}
			return nil, fmt.Errorf("prefix: generated id %d is not in the vocabulary", id)
		}
		if special {
			ids = generated[:i]
			break
		}
		all.Write(b)
	}
	spelled := all.String()
	if reasoning == "" && f.ThinkInPrompt && strings.HasPrefix(spelled, f.ThinkClose) && !strings.Contains(text, f.ThinkClose) {
		// Reasoning that the prompt opened was closed without a word, and the engine
		// has split it off.
		if id, ok := t.ID(f.ThinkClose); !ok || ids[0] != id {
			return nil, errOutput
		}
		ids, spelled = ids[1:], spelled[len(f.ThinkClose):]
	}
	whole := text
	at := strings.Index(spelled, f.ThinkClose)
	switch {
	case reasoning == "":
	case text == "" && at < 0: // cut before the reasoning ended
		if !strings.Contains(lossy(spelled), lossy(strings.TrimSpace(reasoning))) {
			return nil, errOutput
		}
		whole = spelled
	default:
		if f.ThinkClose == "" || at < 0 || !strings.Contains(spelled[:at], strings.TrimSpace(reasoning)) {
			return nil, errOutput
		}
		at += len(f.ThinkClose)
		for at < len(spelled) && spelled[at] == '\n' {
			at++
		}
		whole = spelled[:at] + strings.TrimLeft(text, "\n")
	}
	if !strings.HasPrefix(spelled, whole) {
		// Bytes that are no text reach the client as replacement characters.
		if lossy(spelled) != lossy(whole) {
			return nil, errOutput
		}
		return slices.Clone(ids), nil
	}
	n := 0
	for i, id := range ids {
		b, _, _ := t.Token(id)
		if n == len(whole) {
			return slices.Clone(ids[:i]), nil
		}
		if n+len(b) > len(whole) {
			return t.EncodeOrdinary(slices.Clone(ids[:i]), whole[n:]), nil
		}
		n += len(b)
	}
	return slices.Clone(ids), nil
}

var errOutput = errors.New("prefix: the generated ids are not those of the text")

// lossy has one replacement character for each run of bytes that are no UTF-8, and
// of such characters.
func lossy(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\ufffd", "\xff"), "\ufffd")
}
