package grammar

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWatch(t *testing.T) {
	rep := strings.Repeat
	for _, tt := range []struct {
		text, what string
		offset     int
	}{
		{`{"a": 1}`, "", 0},
		{`{"a":` + rep(" ", 64) + `1}`, "", 0},
		{`{"a":` + rep(" ", 65) + `1}`, "blanks", 69},
		{`{"a":` + rep("\n\t", 40), "blanks", 69},
		{`{"a": "` + rep(" ", 4000) + `"}`, "", 0},
		{`{"a": "` + rep(" ", 4100), "repeats", 7 + 4097},
		{`{"a": "\"` + rep(" ", 100) + `"}`, "", 0},
		{`{"a": "\\"` + rep(" ", 100) + `}`, "blanks", 10 + 64},
		{`{"a": ` + rep("7", 64) + `}`, "", 0},
		{`{"a": 0.` + rep("12", 40), "digits", 8 + 64},
		{`[` + rep("123456789, ", 370) + `1]`, "", 0},
		{`[` + rep("123456789, ", 400) + `1]`, "repeats", 1 + 11 + 4096},
		{`{"a": "` + rep(`\n`, 2100), "repeats", 7 + 2 + 4096},
		{`{"a": "` + rep(rep("x", 64)+"y", 100), "", 0}, // 65 bytes are no pattern
	} {
		for _, piece := range []int{1, 7, len(tt.text)} {
			var w Watch
			var err error
			for at := 0; at < len(tt.text) && err == nil; at += piece {
				err = w.Feed([]byte(tt.text[at:min(len(tt.text), at+piece)]))
			}
			var s *StallError
			if errors.As(err, &s) != (tt.what != "") || s != nil && (s.What != tt.what || s.Offset != tt.offset) {
				t.Errorf("%.40q… in pieces of %d: %v, want %s at %d", tt.text, piece, err, tt.what, tt.offset)
			}
			if err != nil && w.Feed([]byte("x")) != err {
				t.Error("a stall is forgotten")
			}
		}
	}
	w := Watch{Blanks: 2, Repeats: 1 << 30}
	if err := w.Feed([]byte("[   1")); err == nil {
		t.Error("the limit is not kept")
	}
}

// TestWatchTwin: a pattern is noticed if and only if looking back finds one.
func TestWatchTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`"[ab]{0,200}(ab|aab|b){0,60}`).Draw(t, "text")
		limit := rapid.IntRange(5, 60).Draw(t, "limit")
		want := -1
	search:
		for end := range text {
			for period := 1; period <= maxPeriod; period++ {
				n := 0
				for end-n-period >= 0 && text[end-n] == text[end-n-period] {
					n++
				}
				if n > limit {
					want = end
					break search
				}
			}
		}
		w := Watch{Repeats: limit}
		got := -1
		var s *StallError
		if errors.As(w.Feed([]byte(text)), &s) {
			got = s.Offset
		}
		if got != want {
			t.Fatalf("%q, limit %d: noticed at %d, want %d", text, limit, got, want)
		}
	})
}
