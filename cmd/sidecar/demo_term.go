package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/text/width"
)

// terminal is where the demo writes for people: how wide lines may be, and
// whether colours and a line that rewrites itself are welcome.
type terminal struct {
	w      io.Writer
	width  int // cells
	colour bool
	live   bool // the cursor may be moved
}

// Widths in cells: that of a stream that is no terminal, and the least that lines
// are laid out for.
const (
	plainWidth = 80
	leastWidth = 40
	mostWidth  = 110 // longer lines are hard to read
)

// newTerminal looks at w and the environment: NO_COLOR (no-color.org), TERM=dumb,
// and COLUMNS for a stream that is no terminal.
func newTerminal(w io.Writer, noColour bool, getenv func(string) string) *terminal {
	t := &terminal{w: w, width: plainWidth}
	if n, err := strconv.Atoi(getenv("COLUMNS")); err == nil && n > 0 {
		t.width = n
	}
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			t.live = getenv("TERM") != "dumb"
			if size.Col > 0 {
				t.width = int(size.Col)
			}
		}
	}
	t.colour = t.live && !noColour && getenv("NO_COLOR") == ""
	t.width = min(max(t.width, leastWidth), mostWidth)
	return t
}

// Colours, by their use. Both light and dark backgrounds show them.
const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
	amber = "33"
	blue  = "36"
)

func (t *terminal) paint(style, s string) string {
	if !t.colour || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// plain makes text of others fit for a terminal: control characters, escape
// sequences and what turns the writing direction become visible or are dropped,
// white space becomes one space.
func plain(s string) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case r == utf8.RuneError, unicode.IsControl(r):
			r = '·'
		case unicode.Is(unicode.Cf, r):
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cells is the width of one character.
func cells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r < 0x300:
		return 1
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// textWidth is the width of text without escape sequences.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += cells(r)
	}
	return n
}

// cut shortens s to n cells, with "…" for what is gone.
func cut(s string, n int) string {
	if textWidth(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		if used+cells(r) > n-1 {
			return s[:i] + "…"
		}
		used += cells(r)
	}
	return s
}

// pad fills s up to n cells, on the left when right is set.
func pad(s string, n int, right bool) string {
	fill := strings.Repeat(" ", max(n-textWidth(s), 0))
	if right {
		return fill + s
	}
	return s + fill
}

// wrap breaks s into lines of at most n cells, between words where it can.
func wrap(s string, n int) []string {
	n = max(n, 2) // one wide character
	var lines []string
	line, used := "", 0
	for _, word := range strings.Fields(s) {
		for {
			w := textWidth(word)
			if line != "" && used+1+w <= n {
				line, used = line+" "+word, used+1+w
				break
			}
			if line != "" {
				lines = append(lines, line)
				line, used = "", 0
			}
			if w <= n {
				line, used = word, w
				break
			}
			at, head := 0, 0
			for i, r := range word {
				if head+cells(r) > n {
					at = i
					break
				}
				head += cells(r)
			}
			lines = append(lines, word[:at])
			word = word[at:]
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// thousands writes 412007 as 412,007.
func thousands(n int) string {
	s := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// duration writes milliseconds with two or three significant digits; none is "–".
func duration(ms float64) string {
	switch {
	case ms <= 0:
		return "–"
	case ms < 0.01:
		return "<0.01 ms"
	case ms < 1:
		return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms < 100_000:
		return strconv.FormatFloat(ms/1e3, 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(ms/1e3, 'f', 0, 64) + " s"
}

// bytesText writes a size in decimal units.
func bytesText(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= u.size {
			return strconv.FormatFloat(n/u.size, 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " B"
}

// ratio writes how many times as long b is as a.
func ratio(a, b int) string {
	if a <= 0 || b <= 0 {
		return ""
	}
	q := float64(b) / float64(a)
	if q < 10 {
		return strconv.FormatFloat(q, 'f', 1, 64) + "×"
	}
	return strconv.FormatFloat(q, 'f', 0, 64) + "×"
}
