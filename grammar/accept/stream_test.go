package accept

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"pgregory.net/rapid"
)

// pointerAt says by looking at brackets and quotes alone in which value the
// prefix of a JSON text ends.
func pointerAt(text string) string {
	type open struct {
		key   string
		index int // -1: an object
		named bool
	}
	var stack []open
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			stack = append(stack, open{index: -1})
		case '[':
			stack = append(stack, open{})
		case '}', ']':
			stack = stack[:len(stack)-1]
		case ',':
			if top := &stack[len(stack)-1]; top.index >= 0 {
				top.index++
			} else {
				top.named = false
			}
		case '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(text) {
				i = len(text)
				break
			}
			if len(stack) > 0 && stack[len(stack)-1].index < 0 && !stack[len(stack)-1].named {
				key, err := strconv.Unquote(strings.ReplaceAll(text[i:end+1], `\/`, "/"))
				if err != nil {
					return "?"
				}
				stack[len(stack)-1].key, stack[len(stack)-1].named = key, true
			}
			i = end
		}
	}
	p := ""
	for _, o := range stack {
		switch {
		case o.index >= 0:
			p += "/" + strconv.Itoa(o.index)
		case o.named:
			p += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(o.key)
		}
	}
	return p
}

// TestFollowTwin: at each byte a follower says what one says that reads the
// text so far anew; the pointer is that of the brackets and quotes; and the
// bytes that may come next are those that do.
func TestFollowTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := schemaGen{t, Draft2020}.whole(2)
		a, err := Compile(context.Background(), []byte(schema), Options{})
		if err != nil || a.Start() == 0 {
			t.Skip(err)
		}
		g := valueGen{t}
		text := g.spell(g.value(3))
		if rapid.IntRange(0, 3).Draw(t, "twice") == 0 { // keys that stood before
			text = strings.NewReplacer(`"b"`, `"a"`, `"c"`, `"a"`).Replace(text)
		}
		f := a.NewFollower()
		for i := range len(text) + 1 {
			again := a.NewFollower()
			err := again.Feed([]byte(text[:i]))
			if fmt.Sprint(err) != fmt.Sprint(f.err) || again.State() != f.State() || again.Path() != f.Path() || again.Done() != f.Done() || again.Offset() != f.Offset() ||
				!slices.Equal(again.Expected(), f.Expected()) {
				t.Fatalf("%s\n%q: %v %q %v %d, anew %v %q %v %d", schema, text[:i], f.err, f.Path(), f.Done(), f.Offset(), err, again.Path(), again.Done(), again.Offset())
			}
			next, limit := f.Next()
			if limit != nil {
				t.Fatal(limit)
			}
			if f.err == nil && f.State() != 0 {
				if want := pointerAt(text[:i]); want != "?" && f.Path() != want {
					t.Fatalf("%q: at %q, want %q", text[:i], f.Path(), want)
				}
				if b := byte(rapid.IntRange(0, 255).Draw(t, "b")); i < len(text) {
					for _, b := range []byte{b, text[i], '"', '}', ','} {
						one := a.NewFollower()
						err := one.Feed([]byte(text[:i] + string(b)))
						if b < 0x80 && (err == nil) != slices.Contains(next, b) {
							t.Fatalf("%s\n%q then %q: %v; next are %q", schema, text[:i], b, err, next)
						}
					}
				}
			} else if next != nil {
				t.Fatalf("%q may come after %v", next, f.err)
			}
			if i < len(text) {
				f.Feed([]byte(text[i : i+1]))
			}
		}
	})
}

// TestFollowTokens: tokens are their bytes; special ones are no text.
func TestFollowTokens(t *testing.T) {
	tok := tokenizer.Qwen3()
	end, ok := tok.ID("<|im_end|>")
	other, ok2 := tok.ID("<|im_start|>")
	if !ok || !ok2 {
		t.Fatal("no such tokens")
	}
	v, err := token.NewVocabulary(tok, end)
	if err != nil {
		t.Fatal(err)
	}
	a := compileT(t, `{"properties":{"city":{"type":"string"},"n":{"type":"integer"}},"required":["n"]}`, Options{})
	text := `{"city": "Zürich <|im_start|>", "n": 12}`
	f := a.NewFollower()
	for _, id := range tok.EncodeOrdinary(nil, text) {
		if err := f.Token(v, id); err != nil {
			t.Fatal(err)
		}
	}
	if f.Offset() != len(text) || f.Token(v, end) != nil {
		t.Errorf("%d bytes, %v", f.Offset(), f.err)
	}
	f = a.NewFollower()
	f.Feed([]byte(`{"city": "`))
	if err, ok := f.Token(v, other).(*StopError); !ok || err.Offset != 10 || err.Pointer != "/city" {
		t.Errorf("a special token: %+v", err)
	}
	f = a.NewFollower()
	f.Feed([]byte(`{"city": "x"`))
	if err, ok := f.Token(v, end).(*StopError); !ok || err.Offset != 12 {
		t.Errorf("the end too early: %+v", err)
	}
}
