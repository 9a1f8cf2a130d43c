// Package tokenbudget keeps one observation, the text of a tool's result, from
// flooding a model's window: what is over the allowance becomes its head, one
// line that says what is missing (the tombstone), and its tail.
//
// Shape never gives more than the allowance. Equal input gives equal bytes, so
// that what was once sent can be sent again. It takes time linear in the text
// and tokenises only windows of it: of 100 MB it reads every byte once, to
// count lines, and counts the tokens of a few hundred kilobytes.
package tokenbudget

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Config is what an observation may cost. The zero value is usable.
type Config struct {
	// MaxTokens is the allowance of the whole shaped text, tombstone included.
	// 0 means 2,000: on a window of 32k an agent can then hold a dozen
	// observations. Negative means that nothing may be kept.
	MaxTokens int
	// HeadShare is the part of the allowance, in percent, that goes to the
	// head; the rest goes to the tail. 0 means 60. To keep only the tail use a
	// negative number, to keep only the head 100.
	HeadShare int
	// WindowBytes bounds how many bytes of either end are looked at per token
	// of allowance. 0 means 16. A text of more than 8 windows is taken to be
	// over the allowance without being counted; real text has 2 to 5 bytes a
	// token, a run of spaces can have 128.
	WindowBytes int
}

const (
	defaultTokens = 2000
	defaultHead   = 60
	defaultWindow = 16
)

func (c Config) filled() Config {
	if c.MaxTokens == 0 {
		c.MaxTokens = defaultTokens
	}
	switch {
	case c.HeadShare == 0:
		c.HeadShare = defaultHead
	case c.HeadShare < 0:
		c.HeadShare = 0
	}
	c.HeadShare = min(c.HeadShare, 100)
	if c.WindowBytes <= 0 {
		c.WindowBytes = defaultWindow
	}
	return c
}

// Shaped is the outcome.
type Shaped struct {
	Text string
	// Cut tells whether something was left out. If not, Text is the text given,
	// but for bytes that are not UTF-8.
	Cut bool
	// HeadBytes and TailBytes are what Text keeps of either end, tombstone apart.
	HeadBytes, TailBytes int
	// OriginalTokens is the count of the text given. For a text longer than
	// the windows it is an estimate, and Estimated says so: the tokens per byte
	// of what was counted, times its length.
	OriginalTokens int
	Estimated      bool
	KeptTokens     int // count of Text
	LostBytes      int
	LostLines      int // line ends left out
}

// Shape brings text within the allowance; count gives the tokens of a text.
//
// If the text fits it stays as it is. Otherwise the result is head, tombstone
// and tail: the head is a prefix of the text, the tail a suffix. They end at a
// line end where one lies in the half next to the cut, else between characters.
// Bytes that are not UTF-8 become U+FFFD first, since a model is only ever
// given text; "prefix" and "suffix" are then of that text. When not even the
// tombstone fits, Text is empty.
//
// Shape(Shape(text)) is Shape(text), as its result is within the allowance.
func Shape(text string, cfg Config, count func(string) int) Shaped {
	cfg = cfg.filled()
	if cfg.MaxTokens < 0 {
		cfg.MaxTokens = 0
	}
	window := min(cfg.MaxTokens, 1<<24) * cfg.WindowBytes
	// The result of an earlier Shape, at most 6 windows where every byte became
	// U+FFFD, is always counted whole.
	if len(text) <= 8*window+4096 {
		text = strings.ToValidUTF8(text, "\uFFFD")
		n := count(text)
		if n <= cfg.MaxTokens {
			return Shaped{Text: text, OriginalTokens: n, KeptTokens: n}
		}
		s := cut(text, cfg, window, count)
		s.OriginalTokens = n
		return s
	}
	// Only the ends are made valid: the middle is left out anyway, and
	// replacing in all of it would copy 100 MB.
	head := text[:prefixAtRune(text, window+2048)]
	tail := text[suffixAtRune(text, len(text)-window-2048):]
	n := count(strings.ToValidUTF8(head, "\uFFFD")) + count(strings.ToValidUTF8(tail, "\uFFFD"))
	estimate := int(float64(n) * float64(len(text)) / float64(len(head)+len(tail)))
	if estimate <= cfg.MaxTokens {
		estimate = cfg.MaxTokens + 1 // it was not counted whole, so it isn't claimed to fit
	}
	s := cut(text, cfg, window, count)
	s.OriginalTokens, s.Estimated = estimate, true
	return s
}

// cut finds the largest head and tail that fit.
func cut(text string, cfg Config, window int, count func(string) int) Shaped {
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	lines := strings.Count(text, "\n")
	build := func(head, tail int) Shaped {
		h, t := valid(text[:head]), valid(text[tail:])
		s := Shaped{Cut: true, HeadBytes: len(h), TailBytes: len(t), LostBytes: tail - head}
		s.LostLines = lines - strings.Count(text[:head], "\n") - strings.Count(text[tail:], "\n")
		s.Text = h + tombstone(s.LostBytes, s.LostLines, h, t) + t
		s.KeptTokens = count(s.Text)
		return s
	}
	if s := build(0, len(text)); s.KeptTokens > cfg.MaxTokens {
		return Shaped{Cut: true, LostBytes: len(text), LostLines: lines, KeptTokens: count("")}
	} else if len(text) == 0 {
		return s
	}
	// What the tombstone costs with numbers as long as they get.
	spare := cfg.MaxTokens - count(tombstone(len(text), lines, "x", "x"))
	if spare <= 0 {
		return build(0, len(text))
	}
	headTokens := spare * cfg.HeadShare / 100
	head := largest(min(window, len(text)), func(n int) bool {
		return count(valid(text[:prefixAtRune(text, n)])) <= headTokens
	})
	head = lineStart(text, prefixAtRune(text, head))
	left := spare - count(valid(text[:head]))
	if cfg.HeadShare == 100 {
		left = 0
	}
	room := min(window, len(text)-head)
	tail := largest(room, func(n int) bool {
		return count(valid(text[suffixAtRune(text, len(text)-n):])) <= left
	})
	from := lineEnd(text, suffixAtRune(text, len(text)-tail))
	// Tokens of parts don't add up exactly where the parts meet; take away
	// from the longer end until the whole fits.
	for {
		s := build(head, from)
		if s.KeptTokens <= cfg.MaxTokens {
			return s
		}
		over := s.KeptTokens - cfg.MaxTokens
		if step := max(over*2, 1); head >= len(text)-from {
			head = prefixAtRune(text, max(0, head-max(step, head/16)))
		} else {
			from = suffixAtRune(text, min(len(text), from+max(step, (len(text)-from)/16)))
		}
	}
}

// tombstone stands for what was left out, on a line of its own.
func tombstone(bytes, lines int, head, tail string) string {
	var b strings.Builder
	if head != "" && !strings.HasSuffix(head, "\n") {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "[... %d bytes", bytes)
	if lines > 0 {
		fmt.Fprintf(&b, ", %d lines", lines)
	}
	b.WriteString(" left out ...]")
	if tail != "" {
		b.WriteByte('\n')
	}
	return b.String()
}

// largest finds by halving some n in 0..limit with fits(n), and not far above
// it one that doesn't fit: token counts rise with length but for small steps.
// It starts small, so that no count is of much more text than fits.
func largest(limit int, fits func(int) bool) int {
	lo, hi := 0, 64
	for hi < limit && fits(hi) {
		lo, hi = hi, hi*2
	}
	if hi >= limit {
		if fits(limit) {
			return limit
		}
		hi = limit
	}
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if fits(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// prefixAtRune is the largest cut of s not above n that splits no character.
func prefixAtRune(s string, n int) int {
	if n <= 0 {
		return 0
	}
	if n >= len(s) {
		return len(s)
	}
	for i := n; i > n-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return n // not UTF-8 here
}

// suffixAtRune is the smallest cut of s not below n that splits no character.
func suffixAtRune(s string, n int) int {
	if n <= 0 {
		return 0
	}
	for i := n; i < n+utf8.UTFMax; i++ {
		if i >= len(s) {
			return len(s)
		}
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return n // not UTF-8 here
}

// lineStart moves the end of a head back behind the last line end in its second
// half.
func lineStart(s string, head int) int {
	from := head - head/2
	if i := strings.LastIndexByte(s[from:head], '\n'); i >= 0 {
		return from + i + 1
	}
	return head
}

// lineEnd moves the start of a tail forward behind the first line end in its
// first half.
func lineEnd(s string, tail int) int {
	to := tail + (len(s)-tail)/2
	if i := strings.IndexByte(s[tail:to], '\n'); i >= 0 {
		return tail + i + 1
	}
	return tail
}
