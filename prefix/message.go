package prefix

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Message is the meaning of one client message.
type Message struct {
	Role      string
	Text      string // content; text parts joined
	Name      string // optional participant name, or a function result's function
	Calls     []Call // assistant only
	CallID    string // role "tool": the id of the call it answers
	Reasoning string // assistant only; not part of the meaning

	// Opaque holds the client's JSON when the content is more than text, such as
	// an image. It is then compared byte for byte and never rewritten.
	Opaque json.RawMessage
}

// Call is one tool call of an assistant message.
type Call struct {
	ID        string
	Name      string
	Arguments string // raw JSON text; need not be valid in a client's history
}

// SortResults orders each run of role:"tool" messages by the position of their
// calls in the assistant message before the run, and returns the permutation:
// result[i] is the index in msgs of the i-th message in order. Results that
// answer no call of that message keep their place after the others.
func SortResults(msgs []Message) []int {
	order := make([]int, len(msgs))
	for i := range order {
		order[i] = i
	}
	for i := 0; i < len(msgs); {
		if msgs[i].Role != "tool" {
			i++
			continue
		}
		j := i
		for j < len(msgs) && msgs[j].Role == "tool" {
			j++
		}
		if i > 0 {
			calls := callIndex(msgs[i-1].Calls)
			slices.SortStableFunc(order[i:j], func(a, b int) int {
				return calls.of(msgs[a].CallID) - calls.of(msgs[b].CallID)
			})
		}
		i = j
	}
	return order
}

// positions are the first positions of call ids in a list of calls.
type positions struct {
	at   map[string]int
	none int // of an id that no call has
}

func callIndex(calls []Call) positions {
	p := positions{make(map[string]int, len(calls)), len(calls)}
	for i, c := range calls {
		if _, ok := p.at[c.ID]; !ok {
			p.at[c.ID] = i
		}
	}
	return p
}

func (p positions) of(id string) int {
	if i, ok := p.at[id]; ok {
		return i
	}
	return p.none
}

// A Key names one point of one conversation: SHA-256 over everything that the
// prompt up to this point depends on.
type Key [sha256.Size]byte

// next is the key after a message of this meaning.
func (k Key) next(meaning Key) Key {
	return sha256.Sum256(append(k[:], meaning[:]...))
}

// meaning is the hash of what m says, given the calls that a tool result may
// answer.
func (m *Message) meaning(calls positions) Key {
	h := sha256.New()
	if m.Opaque != nil {
		field(h, "opaque")
		field(h, string(m.Opaque))
		return Key(h.Sum(nil))
	}
	field(h, m.Role)
	switch m.Role {
	case "assistant":
		field(h, spoken(m.Text))
	case "tool":
		field(h, m.Text)
		number(h, calls.of(m.CallID))
	default:
		field(h, m.Name)
		field(h, m.Text)
	}
	number(h, len(m.Calls))
	for _, c := range m.Calls {
		field(h, c.Name)
		field(h, canonicalArguments(c.Arguments))
	}
	return Key(h.Sum(nil))
}

// thinkClose ends reasoning that stands in the text of a message, in all families
// that have any.
const thinkClose = "</think>"

// spoken is the text of an assistant message without what clients drop or trim:
// reasoning in front of it, and white space around it.
func spoken(text string) string {
	if i := strings.LastIndex(text, thinkClose); i >= 0 {
		text = text[i+len(thinkClose):]
	}
	return strings.TrimSpace(text)
}

// meanings are those of a list of messages.
func meanings(msgs []Message) []Key {
	keys := make([]Key, len(msgs))
	var calls positions
	for i := range msgs {
		if msgs[i].Role == "assistant" {
			calls = callIndex(msgs[i].Calls)
		}
		keys[i] = msgs[i].meaning(calls)
	}
	return keys
}

// field writes a string with its length, so that no two lists of fields hash
// the same bytes.
func field(h hash.Hash, s string) {
	number(h, len(s))
	h.Write([]byte(s))
}

func number(h hash.Hash, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

// CanonicalJSON is one spelling for all JSON texts of the same value: sorted
// keys, no space, the shortest form of each number that a float64 holds exactly.
// Text that is not JSON, or repeats a key, is returned as it is. It serves to
// compare values, not to send them.
func CanonicalJSON(text string) string { return canonicalText(text, false) }

// canonicalArguments is CanonicalJSON without members that are null, which clients
// leave out when they write arguments anew. No arguments at all are an empty
// object.
func canonicalArguments(text string) string {
	if strings.TrimSpace(text) == "" {
		return "{}"
	}
	return canonicalText(text, true)
}

func canonicalText(text string, dropNull bool) string {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var b bytes.Buffer
	if !canonical(dec, &b, dropNull, 0) || dec.More() || strings.TrimSpace(text[dec.InputOffset():]) != "" {
		return text
	}
	return b.String()
}

// maxCanonicalDepth bounds the recursion of canonical; encoding/json itself
// stops at 10,000.
const maxCanonicalDepth = 512

func canonical(dec *json.Decoder, b *bytes.Buffer, dropNull bool, depth int) bool {
	tok, err := dec.Token()
	if err != nil || depth > maxCanonicalDepth {
		return false
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '[' {
			b.WriteByte('[')
			for i := 0; dec.More(); i++ {
				if i > 0 {
					b.WriteByte(',')
				}
				if !canonical(dec, b, dropNull, depth+1) {
					return false
				}
			}
			_, err := dec.Token()
			b.WriteByte(']')
			return err == nil
		}
		members := map[string]string{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return false
			}
			name := key.(string)
			if _, dup := members[name]; dup {
				return false
			}
			var member bytes.Buffer
			if !canonical(dec, &member, dropNull, depth+1) {
				return false
			}
			members[name] = member.String()
		}
		if _, err := dec.Token(); err != nil {
			return false
		}
		names := make([]string, 0, len(members))
		for name, v := range members {
			if !dropNull || v != "null" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		b.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, name)
			b.WriteByte(':')
			b.WriteString(members[name])
		}
		b.WriteByte('}')
	case string:
		quote(b, v)
	case json.Number:
		b.WriteString(canonicalNumber(v.String()))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case nil:
		b.WriteString("null")
	}
	return true
}

func quote(b *bytes.Buffer, s string) {
	q, _ := json.Marshal(s) // a string always marshals
	b.Write(q)
}

// canonicalNumber spells a number as ECMAScript would when a float64 holds it
// exactly enough to be read back as the same decimal, else leaves it alone.
func canonicalNumber(s string) string {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return s
	}
	if f == 0 {
		return "0"
	}
	if math.Abs(f) >= 1<<53 {
		return s
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}
