package tokenbudget

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Counters as unlike each other as vocabularies are. None is additive but the first two.
var counters = map[string]func(string) int{
	"bytes":    func(s string) int { return len(s) },
	"runes":    utf8.RuneCountInString,
	"quarters": func(s string) int { return (len(s) + 3) / 4 },
	"words": func(s string) int {
		n := len(strings.Fields(s))
		for _, f := range strings.Fields(s) {
			n += len(f) / 6
		}
		return n + strings.Count(s, "\n")
	},
	"runs": func(s string) int { // equal bytes in a row are one token
		n := 0
		for i := range len(s) {
			if i == 0 || s[i] != s[i-1] {
				n++
			}
		}
		return n
	},
}

func TestShapeProperties(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "line one\n", "\n", "error: x=1 ", `{"k": "v"}, `, "é", "😀", "日本語", "\xff", "\xe2\x82", "    ", "\r\n", strings.Repeat("z", 200), strings.Repeat("0123456789", 30) + "\n"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 80).Draw(t, "pieces"), "")
		if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
			text = strings.Repeat(text, 20)
		}
		name := rapid.SampledFrom([]string{"bytes", "runes", "quarters", "words", "runs"}).Draw(t, "count")
		count := counters[name]
		cfg := Config{
			MaxTokens:   rapid.IntRange(-1, 400).Draw(t, "max"),
			HeadShare:   rapid.SampledFrom([]int{0, -1, 1, 50, 99, 100}).Draw(t, "head"),
			WindowBytes: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "window"),
		}
		allowance := cfg.filled().MaxTokens
		allowance = max(allowance, 0)
		s := Shape(text, cfg, count)
		if got := count(s.Text); got > allowance || got != s.KeptTokens {
			t.Fatalf("%d tokens (said %d) over %d", got, s.KeptTokens, allowance)
		}
		if !utf8.ValidString(s.Text) {
			t.Fatal("not UTF-8")
		}
		valid := strings.ToValidUTF8(text, "\uFFFD")
		if !s.Cut {
			if s.Text != valid {
				t.Fatal("not cut, but changed")
			}
		} else {
			head, tail := s.Text[:s.HeadBytes], s.Text[len(s.Text)-s.TailBytes:]
			if !strings.HasPrefix(valid, head) {
				t.Fatalf("head %q is no prefix", head)
			}
			if !strings.HasSuffix(valid, tail) {
				t.Fatalf("tail %q is no suffix", tail)
			}
			if mark := s.Text[s.HeadBytes : len(s.Text)-s.TailBytes]; s.Text != "" && !strings.Contains(mark, "left out") {
				t.Fatalf("no tombstone in %q", s.Text)
			}
			if !s.Estimated && count(valid) <= allowance {
				t.Fatalf("cut though it fits: %d of %d", count(valid), allowance)
			}
		}
		if again := Shape(text, cfg, count); again != s {
			t.Fatal("not repeatable")
		}
		if twice := Shape(s.Text, cfg, count); twice.Text != s.Text || twice.Cut {
			t.Fatalf("not idempotent: %q then %q", s.Text, twice.Text)
		}
	})
}

func TestShape(t *testing.T) {
	var log strings.Builder
	for i := range 1000 {
		log.WriteString(strings.Repeat(string(rune('a'+i%26)), 19) + "\n")
	}
	for _, tt := range []struct {
		name, text string
		cfg        Config
		want       string
	}{
		{"fits", "hello\n", Config{MaxTokens: 6}, "hello\n"},
		{"lines", log.String(), Config{MaxTokens: 140, HeadShare: 50},
			strings.Repeat("a", 19) + "\n" + strings.Repeat("b", 19) + "\n[... 19920 bytes, 996 lines left out ...]\n" + strings.Repeat("k", 19) + "\n" + strings.Repeat("l", 19) + "\n"},
		{"one line", strings.Repeat("x", 1000), Config{MaxTokens: 60, HeadShare: 50},
			strings.Repeat("x", 14) + "\n[... 971 bytes left out ...]\n" + strings.Repeat("x", 15)},
		{"no room", strings.Repeat("x", 1000), Config{MaxTokens: 5}, ""},
		{"nothing", "x", Config{MaxTokens: -1}, ""},
	} {
		s := Shape(tt.text, tt.cfg, counters["bytes"])
		if s.Text != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, s.Text, tt.want)
		}
	}
}

// TestShapeHuge: 100 MB in one line, counted in windows only.
func TestShapeHuge(t *testing.T) {
	if testing.Short() {
		t.Skip("100 MB")
	}
	text := strings.Repeat("0123456789", 10<<20)
	counted := 0
	start := time.Now()
	s := Shape(text, Config{}, func(s string) int { counted += len(s); return len(s) / 4 })
	t.Logf("%d MB in %v, %d kB counted", len(text)>>20, time.Since(start), counted>>10)
	if !s.Cut || !s.Estimated || s.KeptTokens > 2000 || s.KeptTokens < 1800 || counted > 2<<20 {
		t.Errorf("kept %d tokens, counted %d bytes", s.KeptTokens, counted)
	}
	if s.OriginalTokens < 25<<20 || s.OriginalTokens > 27<<20 {
		t.Errorf("estimate %d", s.OriginalTokens)
	}
}

func FuzzShape(f *testing.F) {
	f.Add("a\nb\xff\n", 7, 60)
	f.Fuzz(func(t *testing.T, text string, most, head int) {
		most = min(most, 1<<16)
		s := Shape(text, Config{MaxTokens: most, HeadShare: head, WindowBytes: 2}, counters["words"])
		if limit := max((Config{MaxTokens: most}).filled().MaxTokens, 0); counters["words"](s.Text) > limit {
			t.Fatalf("over %d", limit)
		}
	})
}
