package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// loop plays one conversation of 20 turns as token-in mode does: four requests of a
// user, each of which adds two tools, and four calls with their results behind
// each. It returns the bytes of texts and ids that the engine generated or was
// sent, which grow with the conversation and not with its turns.
func loop(t testing.TB, l prefix.Ledger, f *wire.Family, tok *tokenizer.Tokenizer, nth int) (ids int) {
	scope := prefix.Scope{Secret: []byte("secret"), Tenant: "tenant", Fingerprint: "model"}
	definition := func(name string) prefix.Shown {
		return prefix.Shown{Name: name, JSON: `{"type": "function", "function": {"name": "` + name + `", "description": "` + strings.Repeat("what it does ", 10) + `", "parameters": {"type": "object", "properties": {"id": {"type": "string", "description": "The id of the thing."}, "limit": {"type": "integer", "minimum": 1, "maximum": 100}}, "required": ["id"]}}}`}
	}
	msgs := []prefix.Message{{Role: "system", Text: "You are an agent."}}
	for turn := range 20 {
		if turn%5 == 0 {
			msgs = append(msgs, prefix.Message{Role: "user", Text: fmt.Sprintf("Request %d of conversation %d.", turn, nth)})
		} else {
			msgs = append(msgs, prefix.Message{Role: "tool", CallID: fmt.Sprint(turn - 1), Text: strings.Repeat("some result; ", 40)})
		}
		c := prefix.Open(l, scope, "tools", msgs)
		if c.Front() == nil {
			c.SetFront(&prefix.Block{Tools: []prefix.Shown{definition("tool_search")}, Directory: strings.Repeat("server (20), ", 60)})
		}
		var late []*prefix.Block
		if turn%5 == 0 {
			late = append(late, &prefix.Block{Query: "Request of a user", Tools: []prefix.Shown{definition(fmt.Sprint("a", turn)), definition(fmt.Sprint("b", turn))}})
		}
		c.Decide(c.Len()-1, "", false, late...)
		p, err := c.Prompt(f, tok, nil)
		if err != nil {
			t.Fatal(err)
		}
		said := prefix.Message{Role: "assistant", Text: strings.Repeat("A sentence of the model. ", 10)}
		if turn%5 < 4 {
			said.Calls = []prefix.Call{{ID: fmt.Sprint(turn), Name: "a0", Arguments: `{"id": "7"}`}}
		}
		raw := f.TurnText(said.Text, []wire.Call{{Name: "a0", Arguments: `{"id": "7"}`}})
		output := tok.Encode(nil, raw)
		c.Reply(said, prefix.Generated{Text: raw, Prompt: p, Output: output})
		ids += len(raw) + len(prefix.PackIDs(output))
		if turn == 19 {
			ids += len(prefix.PackIDs(p.IDs)) // the Heads together are no more than the last prompt
		}
		msgs = append(msgs, said)
	}
	return ids
}

// TestConversationBytes: a conversation of 20 turns takes at most 10 kB of memory or
// of the files besides its texts and ids, and what it takes does not grow with the number
// of conversations.
func TestConversationBytes(t *testing.T) {
	f, err := wire.ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	tok := tokenizer.Qwen3()
	const n = 20
	memory := store.NewMemory(1 << 30)
	file, _ := openFile(t, t.TempDir(), nil)
	for name, l := range map[string]store.Ledger{"memory": memory, "file": file} {
		loop(t, l, f, tok, -1) // with the front block, which all share
		_, before, _ := l.Stats()
		ids := 0
		for i := range n {
			ids += loop(t, l, f, tok, i)
		}
		entries, after, _ := l.Stats()
		each := (after - before - ids) / n
		t.Logf("%s: %d entries and %d bytes a conversation besides %d of texts and ids", name, entries/(n+1), each, ids/n)
		if each > 10_000 {
			t.Errorf("%s: %d bytes a conversation", name, each)
		}
	}
}

// BenchmarkConversation looks up the 40 messages of a conversation of 20 turns
// whose messages are hashed already: what a turn reads of the ledger.
func BenchmarkConversation(b *testing.B) {
	f, err := wire.ByName("hermes")
	if err != nil {
		b.Fatal(err)
	}
	file, _ := openFile(b, b.TempDir(), nil)
	for name, l := range map[string]store.Ledger{"memory": store.NewMemory(1 << 30), "file": file} {
		recorded := &recording{Ledger: l}
		loop(b, recorded, f, tokenizer.Qwen3(), 0)
		b.Run("ledger="+name, func(b *testing.B) {
			reportP99(b, func(int) bool {
				for _, k := range recorded.keys {
					if _, ok := l.Get(k); !ok {
						return false
					}
				}
				return true
			})
		})
	}
}

// recording notes the keys that are put.
type recording struct {
	store.Ledger
	keys []prefix.Key
}

func (r *recording) Put(k prefix.Key, e *prefix.Entry) {
	r.keys = append(r.keys, k)
	r.Ledger.Put(k, e)
}
