package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// demoView writes the demo for people, line by line as things happen. On a
// terminal one more line at the end says what is being waited for.
type demoView struct {
	t        *terminal
	fallback string // of the turn before

	// mu guards the fields below and the writer.
	mu     sync.Mutex
	doing  string
	since  time.Time
	tail   string // end of what the engine is writing
	drawn  bool   // the line of doing is on the screen
	err    error  // the first of writing
	cancel chan struct{}
	done   chan struct{}
}

const (
	indent    = 9 // cells before what belongs to a turn
	tailBytes = 400
	textLines = 6 // of one answer or message; --json has all
)

// line writes one line, over that of doing.
func (v *demoView) line(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	v.print(format+"\n", args...)
}

func (v *demoView) print(format string, args ...any) {
	if _, err := fmt.Fprintf(v.t.w, format, args...); err != nil && v.err == nil {
		v.err = err
	}
}

func (v *demoView) erase() {
	if v.drawn {
		v.print("\r\x1b[K")
		v.drawn = false
	}
}

// begin shows what is being waited for, until end. It does nothing when the
// cursor may not be moved.
func (v *demoView) begin(doing string) {
	if !v.t.live {
		return
	}
	v.mu.Lock()
	v.doing, v.since, v.tail = doing, time.Now(), ""
	v.cancel, v.done = make(chan struct{}), make(chan struct{})
	cancel, done := v.cancel, v.done
	v.mu.Unlock()
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-cancel:
				return
			case <-tick.C:
				v.draw()
			}
		}
	}()
}

func (v *demoView) draw() {
	v.mu.Lock()
	defer v.mu.Unlock()
	head := fmt.Sprintf("%s · %.1f s", v.doing, time.Since(v.since).Seconds())
	if room := v.t.width - 1 - textWidth(head) - 3; v.tail != "" && room > 10 {
		r := []rune(plain(v.tail))
		for textWidth(string(r)) > room {
			r = r[1:]
		}
		head += " · " + string(r)
	}
	v.print("\r\x1b[K%s", v.t.paint(faint, cut(head, v.t.width-1)))
	v.drawn = true
}

// progress adds to the end of what the engine is writing.
func (v *demoView) progress(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tail += s
	if over := len(v.tail) - tailBytes; over > 0 {
		v.tail = v.tail[over:]
	}
}

// end takes the line of begin away and waits for its goroutine.
func (v *demoView) end() {
	if v.cancel == nil {
		return
	}
	close(v.cancel)
	<-v.done
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cancel = nil
	v.erase()
}

// rule starts a section.
func (v *demoView) rule(title string) {
	title = cut(plain(title), v.t.width-6)
	v.line("")
	v.line("%s", v.t.paint(bold, "── "+title+" "+strings.Repeat("─", max(v.t.width-textWidth(title)-4, 2))))
}

func (v *demoView) head(d *demoReport) {
	kind := "simulated: there is no model behind it"
	if !d.Engine.Simulated {
		kind = "given with --engine"
	}
	model := d.Engine.Model
	if d.Engine.Context > 0 {
		model += ", context of " + thousands(d.Engine.Context) + " tokens"
	}
	v.line("%s", v.t.paint(bold, "sidecar demo"))
	v.field("engine", d.Engine.URL+", "+kind)
	v.field("model", model)
	v.field("sidecar", d.Sidecar)
	v.field("catalog", fmt.Sprintf("%s, %s tools", d.Catalog.Name, thousands(d.Catalog.Tools)))
}

// field writes a word and the text that belongs to it, wrapped.
func (v *demoView) field(name, text string) {
	for i, l := range wrap(plain(text), v.t.width-indent) {
		if i > 0 {
			name = ""
		}
		v.line("%s%s", v.t.paint(faint, pad(name, indent, false)), l)
	}
}

// long writes text of others, at most textLines of it.
func (v *demoView) long(mark, style, text string) {
	lines := wrap(plain(text), v.t.width-indent-2)
	if len(lines) > textLines {
		lines = lines[:textLines]
		lines[textLines-1] = cut(lines[textLines-1]+" …", v.t.width-indent-2)
		if !strings.HasSuffix(lines[textLines-1], "…") {
			lines[textLines-1] += "…"
		}
	}
	for i, l := range lines {
		if i > 0 {
			mark = " "
		}
		v.line("%s%s %s", strings.Repeat(" ", indent), v.t.paint(style, mark), l)
	}
}

func (v *demoView) user(text string) {
	v.line("")
	for i, l := range wrap(plain(text), v.t.width-indent) {
		name := "user"
		if i > 0 {
			name = ""
		}
		v.line("%s%s", v.t.paint(blue, pad(name, indent, false)), v.t.paint(bold, l))
	}
}

// turn writes one finished or failed turn.
func (v *demoView) turn(t *demoTurn) {
	name := fmt.Sprintf("turn %d.%d", t.Task, t.Turn)
	room := v.t.width - indent
	at := strings.Repeat(" ", indent)
	head := "no tool added"
	switch len(t.Found) {
	case 0:
	case 1:
		head = "1 tool added"
	default:
		head = fmt.Sprintf("%d tools added", len(t.Found))
	}
	if t.Shown > 0 {
		head += fmt.Sprintf("; %d in the prompt, %s tokens of tools and directory", t.Shown, thousands(t.ShownTokens))
	}
	for i, l := range wrap(head, room) {
		if i == 0 {
			v.line("%s%s", v.t.paint(bold, pad(name, indent, false)), l)
		} else {
			v.line("%s%s", at, l)
		}
	}
	longest := 0
	for _, f := range t.Found {
		longest = max(longest, textWidth(plain(f.Name)))
	}
	longest = min(longest, room-12)
	for _, f := range t.Found {
		about := fmt.Sprintf("%5s tok", thousands(f.Tokens))
		l := "+ " + v.t.paint(green, pad(cut(plain(f.Name), longest), longest, false)) + " " + about
		used := 2 + longest + 1 + textWidth(about)
		if why := plain(f.Why); why != "" {
			if rest := room - used - 2; rest >= 20 {
				v.line("%s%s  %s", at, l, v.t.paint(faint, cut(why, rest)))
				continue
			}
			v.line("%s%s", at, l)
			v.line("%s  %s", at, v.t.paint(faint, cut(why, room-2)))
			continue
		}
		v.line("%s%s", at, l)
	}
	for _, c := range t.Calls {
		v.line("%s%s %s", at, v.t.paint(blue, "→"), cut(plain(c.Name)+" "+plain(c.Arguments), room-2))
		if c.Result != "" {
			v.line("%s%s %s", at, v.t.paint(blue, "←"), v.t.paint(faint, cut(plain(c.Result), room-2)))
		}
	}
	for _, name := range t.Missed {
		v.note("not found, but needed: " + name)
	}
	if t.Text != "" {
		v.long("»", blue, t.Text)
	}
	if t.Finish == "length" {
		v.note("answer cut by --max-tokens")
	}
	switch {
	case t.Fallback != "" && t.Fallback == v.fallback:
		v.note("fallback as before")
	case t.Fallback != "":
		v.note("fallback: " + t.Fallback)
	}
	v.fallback = t.Fallback
	if t.PromptTokens > 0 {
		l := "prompt   " + thousands(t.PromptTokens) + " tokens"
		if t.AllTools != nil {
			l += "; with all tools " + thousands(*t.AllTools)
			if q := ratio(t.PromptTokens, *t.AllTools); q != "" {
				l += " (" + q + ")"
			}
		}
		v.wrapped(l)
		v.wrapped("cached   " + cachedText(t))
	}
	if t.TotalMs > 0 {
		l := "time     "
		if t.FirstMs > 0 {
			l += duration(t.FirstMs) + " to the first token, "
		}
		l += duration(t.TotalMs) + " in all"
		if len(t.Stages) > 0 {
			parts := make([]string, len(t.Stages))
			for i, s := range t.Stages {
				parts[i] = plain(s.Stage) + " " + duration(s.Milliseconds)
			}
			l += "; of it the sidecar " + duration(t.stagesMs()) + ": " + strings.Join(parts, ", ")
		}
		v.wrapped(l)
	}
	if t.Error != "" {
		for i, l := range wrap(plain(t.Error), room-8) {
			word := "failed: "
			if i > 0 {
				word = strings.Repeat(" ", len(word))
			}
			v.line("%s%s%s", at, v.t.paint(red, word), l)
		}
	}
}

// wrapped writes a measurement; lines after the first stand under its value.
func (v *demoView) wrapped(s string) {
	name, value := s[:indent], s[indent:]
	for i, l := range wrap(value, v.t.width-2*indent) {
		if i > 0 {
			name = ""
		}
		v.line("%s%s%s", strings.Repeat(" ", indent), v.t.paint(faint, pad(name, indent, false)), l)
	}
}

func (v *demoView) note(s string) {
	for _, l := range wrap(plain(s), v.t.width-indent) {
		v.line("%s%s", strings.Repeat(" ", indent), v.t.paint(amber, l))
	}
}

// cachedText says what the engine found in its cache beside what was expected.
func cachedText(t *demoTurn) string {
	s := "the engine does not report it"
	if t.CachedTokens != nil {
		s = thousands(*t.CachedTokens) + " as the engine reports"
	}
	if t.ExpectedCached != nil {
		s += ", expected " + thousands(*t.ExpectedCached)
		if t.Turn == 1 && t.CachedTokens != nil && *t.CachedTokens > *t.ExpectedCached {
			s += "; an earlier prompt began the same"
		}
	}
	return s
}

// column is one column of a table; those of the highest rank go first when a
// line is too long.
type column struct {
	name  string
	rank  int
	right bool
	cell  []string
}

// table lays out columns with two spaces between them. When all that is left is
// still too wide, the first column is shortened.
func (v *demoView) table(cols []column, foot bool) {
	size := func(c column) int {
		n := textWidth(c.name)
		for _, s := range c.cell {
			n = max(n, textWidth(s))
		}
		return n
	}
	for {
		total, worst := -2, 0
		for i, c := range cols {
			total += size(c) + 2
			if c.rank > cols[worst].rank {
				worst = i
			}
		}
		if total <= v.t.width {
			break
		}
		if cols[worst].rank == 0 {
			c := &cols[0]
			room := size(*c) - (total - v.t.width)
			c.name = cut(c.name, room)
			for i, s := range c.cell {
				c.cell[i] = cut(s, room)
			}
			break
		}
		cols = append(cols[:worst:worst], cols[worst+1:]...)
	}
	row := func(cell func(column) string) string {
		parts := make([]string, len(cols))
		for i, c := range cols {
			parts[i] = pad(cell(c), size(c), c.right)
		}
		return strings.TrimRight(strings.Join(parts, "  "), " ")
	}
	v.line("%s", v.t.paint(faint, row(func(c column) string { return c.name })))
	n := len(cols[0].cell)
	for i := range n {
		s := row(func(c column) string { return c.cell[i] })
		if foot && i == n-1 {
			s = v.t.paint(bold, s)
		}
		v.line("%s", s)
	}
}

func (v *demoView) summary(d *demoReport) {
	v.rule("Summary")
	cols := []column{
		{name: "turn"},
		{name: "tools", rank: 3, right: true},
		{name: "prompt", right: true},
		{name: "all tools", right: true},
		{name: "less", rank: 4, right: true},
		{name: "cached", rank: 1, right: true},
		{name: "expected", rank: 2, right: true},
		{name: "first", rank: 5, right: true},
		{name: "total", rank: 6, right: true},
		{name: "sidecar", rank: 7, right: true},
	}
	add := func(cells ...string) {
		for i, c := range cells {
			cols[i].cell = append(cols[i].cell, c)
		}
	}
	maybe := func(n *int) string {
		if n == nil {
			return "–"
		}
		return thousands(*n)
	}
	for _, t := range d.Turns {
		all, less := "–", ""
		if t.AllTools != nil {
			all, less = thousands(*t.AllTools), ratio(t.PromptTokens, *t.AllTools)
		}
		total, prompt := duration(t.TotalMs), "–"
		if t.Error != "" {
			total = "failed"
		}
		if t.PromptTokens > 0 {
			prompt = thousands(t.PromptTokens)
		}
		add(fmt.Sprintf("%d.%d", t.Task, t.Turn), strconv.Itoa(t.Shown), prompt, all, less,
			maybe(t.CachedTokens), maybe(t.ExpectedCached), duration(t.FirstMs), total, duration(t.stagesMs()))
	}
	s := d.Summary
	all, less := "–", ""
	if s.AllTools != nil {
		all, less = thousands(*s.AllTools), ratio(s.PromptTokens, *s.AllTools)
	}
	add("sum", "", thousands(s.PromptTokens), all, less, maybe(s.CachedTokens), maybe(s.ExpectedCached), "", duration(s.TotalMs), duration(s.StagesMs))
	v.table(cols, true)
	if d.Baseline != "" {
		v.field("", "all tools: counted by "+d.Baseline)
	}
	if n := d.Engine.Context; s.AllTools != nil && n > 0 && *d.longestBaseline() > n {
		v.field("", fmt.Sprintf("all tools: more than the engine's context of %s tokens; such a prompt would be refused", thousands(n)))
	}
	if s.CachedTokens == nil {
		v.field("", "cached: the engine does not report it (vLLM and sidecar engine: --enable-prompt-tokens-details)")
	}
	if s.Needed > 0 {
		v.field("", fmt.Sprintf("tools: %d of the %d that the tasks need were found at the user's message", s.NeededFound, s.Needed))
	}
	if s.Failed > 0 {
		v.line("%s", v.t.paint(red, fmt.Sprintf("%d of %d turns failed", s.Failed, s.Turns)))
	}
}

func (v *demoView) estimate(e *demoEstimate) {
	v.rule(fmt.Sprintf("Estimate for one %s with %s", e.GPU, e.Model))
	text := e.Error
	if text == "" {
		text = fmt.Sprintf("Prefill of the first prompt: %s tokens in %s with the sidecar, %s tokens in %s with all tools. An estimate from the cards of model and GPU by the formula below; nothing of it was measured.",
			thousands(e.Sidecar.ColdTokens), duration(e.Sidecar.ColdMs), thousands(e.All.ColdTokens), duration(e.All.ColdMs))
	}
	for _, l := range wrap(text, v.t.width) {
		v.line("%s", l)
	}
	if e.Error != "" {
		return
	}
	cols := []column{{name: ""}, {name: "sidecar", right: true}, {name: "all tools", right: true}}
	add := func(cells ...string) {
		for i, c := range cells {
			cols[i].cell = append(cols[i].cell, c)
		}
	}
	a, b := e.Sidecar, e.All
	add("first turn, tokens", thousands(a.ColdTokens), thousands(b.ColdTokens))
	add("  prefill, cold", duration(a.ColdMs), duration(b.ColdMs))
	if a.WarmTokens > 0 {
		add("later turns, new", thousands(int(a.WarmTokens+0.5)), thousands(int(b.WarmTokens+0.5)))
		add("  prefill, warm", duration(a.WarmMs), duration(b.WarmMs))
	}
	add("generated token", duration(a.TokenMs), duration(b.TokenMs))
	add("KV of the longest", bytesText(a.KVBytes), bytesText(b.KVBytes))
	v.table(cols, false)
	if a.WarmTokens > 0 {
		v.bullet("cold: nothing cached; warm: mean of the later turns of a conversation, with the sidecar as cached in this run, with all tools as if the whole turn before were")
	}
	for _, n := range e.Notes {
		v.bullet(n)
	}
	v.bullet(fmt.Sprintf("%s; MFU %g, BWU %g", e.Formula, e.MFU, e.BWU))
}

func (v *demoView) bullet(s string) {
	for i, l := range wrap(plain(s), v.t.width-2) {
		mark := "- "
		if i > 0 {
			mark = "  "
		}
		v.line("%s", v.t.paint(faint, mark+l))
	}
}

// commands are never wrapped or cut: they are there to be copied.
func (v *demoView) commands(lines []string) {
	v.rule("By hand")
	for _, l := range lines {
		v.line("%s", l)
	}
}
