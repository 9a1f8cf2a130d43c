package catalog

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/toolsidecar/sidecar/retrieval"
)

// LiveConfig is how sources are followed.
type LiveConfig struct {
	Sources []Source
	// Pins hold back tools that a source changes. With nil those of URLs and
	// MCP servers are pinned as long as the process lives, and files and the
	// demo, which belong to the operator, are not.
	Pins *Pins
	// Allow and Deny are patterns of tool names, with * and ?. A tool is served
	// if one of Allow fits, or there is none, and none of Deny fits. They go by the
	// names that the sources give; Deny by those that two of one name get, too.
	Allow, Deny []string
	// Refresh is how often URLs and MCP servers are asked anew; 0 means 5
	// minutes. Changes of files, and those that an MCP server announces, are
	// taken up at once.
	Refresh time.Duration
	// IndexCache is a directory that keeps the graph of a large catalog between
	// runs; "" for none.
	IndexCache string
	// GraphFrom is the number of tools from which on a graph finds the nearest; 0
	// means [retrieval.GraphFrom].
	GraphFrom int
	// Report is called with what goes wrong and what changes, never at the same
	// time; nil for nobody.
	Report func(source string, what error)
}

// Live is one catalog over sources that may change. Catalog returns the whole
// as of now; requests keep the one they began with.
type Live struct {
	cfg  LiveConfig
	now  atomic.Pointer[Catalog]
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex // guards parts, the making of now, and Report
	parts []*Catalog // by source, screened; nil: nothing usable
	own   *Pins      // of sources without cfg.Pins

	grow chan struct{} // tells that the graph should follow; of one place
}

const (
	defaultRefresh = 5 * time.Minute
	settle         = 200 * time.Millisecond // after a change of files: an editor writes several times
	firstRetry     = time.Second            // after an MCP server is gone, doubled up to Refresh
)

// Open loads all sources and follows them until Close. It is an error if one
// can't be loaded at first, a [*FileError]; later it keeps the tools that it
// had.
func Open(ctx context.Context, cfg LiveConfig) (*Live, error) {
	if err := checkPatterns(slices.Concat(cfg.Allow, cfg.Deny)); err != nil {
		return nil, err
	}
	if cfg.Refresh <= 0 {
		cfg.Refresh = defaultRefresh
	}
	if cfg.GraphFrom <= 0 {
		cfg.GraphFrom = retrieval.GraphFrom
	}
	own, err := OpenPins("")
	if err != nil {
		return nil, err
	}
	l := &Live{cfg: cfg, parts: make([]*Catalog, len(cfg.Sources)), own: own, grow: make(chan struct{}, 1)}
	run, stop := context.WithCancel(context.Background())
	l.stop = stop
	follows := make([]*follow, len(cfg.Sources))
	for i, s := range cfg.Sources {
		f := &follow{l: l, at: i, s: s, changed: make(chan struct{}, 1)}
		follows[i] = f
		if err = f.load(ctx); err != nil {
			break
		}
	}
	if err == nil {
		err = l.join()
	}
	if err != nil {
		stop()
		for _, f := range follows {
			if f != nil {
				f.drop()
			}
		}
		return nil, err
	}
	l.wg.Go(func() { l.keepGraph(run) })
	for _, f := range follows {
		if f.s.Live() {
			l.wg.Go(func() { f.run(run) })
		}
	}
	return l, nil
}

// Catalog is all tools as of now; nil if there are no sources.
func (l *Live) Catalog() *Catalog { return l.now.Load() }

// Close stops following and ends the servers that were started.
func (l *Live) Close() {
	l.stop()
	l.wg.Wait()
}

// set takes a new version of a source.
func (l *Live) set(at int, c *Catalog, problems []Problem) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.cfg.Sources[at]
	for _, p := range problems {
		l.say(s, errors.New(p.String()))
	}
	tools := make([]retrieval.Tool, 0, c.Len())
	for _, t := range c.tools {
		if fits(l.cfg.Allow, l.cfg.Deny, t.Name) {
			tools = append(tools, t)
		}
	}
	pins := l.cfg.Pins
	if pins == nil && s.kind != atPath {
		pins = l.own
	}
	if pins != nil {
		served, held, err := pins.Screen(s.Label(), tools)
		if err != nil {
			l.say(s, fmt.Errorf("pins: %w", err))
		}
		for _, p := range held {
			l.say(s, errors.New(p.String()))
		}
		tools = served
	}
	if len(tools) == c.Len() {
		l.parts[at] = c
		return nil
	}
	part, err := New(c.name, tools)
	if err != nil {
		return err
	}
	l.parts[at] = part
	return nil
}

func checkPatterns(list []string) error {
	for _, p := range list {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	return nil
}

// fits says whether allow, or nothing where it is empty, lets a name through, and
// deny does not hold it.
func fits(allow, deny []string, name string) bool {
	one := func(list []string) bool {
		return slices.ContainsFunc(list, func(p string) bool { ok, _ := path.Match(p, name); return ok })
	}
	return (len(allow) == 0 || one(allow)) && !one(deny)
}

// join makes one catalog of all parts.
func (l *Live) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*Catalog
	for _, p := range l.parts {
		if p != nil {
			list = append(list, p)
		}
	}
	c, err := Join(list...)
	if err == nil && c != nil {
		c, err = c.without(l.cfg.Deny) // names that tools got here, too
	}
	if err != nil {
		return err
	}
	if old := l.now.Load(); c != nil && (old == nil || old.key != c.key) {
		if old != nil {
			c = c.named(c.name)
			c.indexLike(old)
		}
		c.Index()
		l.now.Store(c)
		select {
		case l.grow <- struct{}{}:
		default:
		}
	}
	return nil
}

// without is c without the tools that one of these patterns fits, c itself where
// none does.
func (c *Catalog) without(deny []string) (*Catalog, error) {
	denied := func(t retrieval.Tool) bool { return !fits(nil, deny, t.Name) }
	if len(deny) == 0 || !slices.ContainsFunc(c.tools, denied) {
		return c, nil
	}
	return New(c.name, slices.DeleteFunc(slices.Clone(c.tools), denied))
}

// say reports; l.mu is held.
func (l *Live) say(s Source, what error) {
	if l.cfg.Report != nil {
		l.cfg.Report(s.String(), what)
	}
}

// A follow is one source that is followed, by one goroutine.
type follow struct {
	l       *Live
	at      int
	s       Source
	srv     *mcpServer // nil while there is no session
	changed chan struct{}
}

// signal says that the source has changed; it never waits.
func (f *follow) signal() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *follow) load(ctx context.Context) error {
	var c *Catalog
	var problems []Problem
	var err error
	if f.s.kind == mcpHTTP || f.s.kind == mcpStdio {
		if f.srv == nil {
			if f.srv, err = dialMCP(ctx, f.s, f.signal); err != nil {
				return &FileError{f.s.Spec, err}
			}
		}
		c, problems, err = f.srv.load(ctx)
		if err != nil {
			f.drop()
		}
	} else {
		c, problems, err = f.s.Load(ctx)
	}
	if err != nil {
		return err
	}
	return f.l.set(f.at, c, problems)
}

func (f *follow) drop() {
	if f.srv != nil {
		f.srv.close()
		f.srv = nil
	}
}

func (f *follow) run(ctx context.Context) {
	defer f.drop()
	if f.s.kind == atPath {
		w, err := f.watch()
		if err != nil {
			f.l.mu.Lock()
			f.l.say(f.s, fmt.Errorf("changes are not seen: %w", err))
			f.l.mu.Unlock()
			return
		}
		defer w.Close()
		f.l.wg.Go(func() { f.relay(w) })
		f.signal() // what changed between the first load and now was not seen
	}
	wait := f.l.cfg.Refresh
	retry := firstRetry
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			if f.s.kind == atPath && !pause(ctx, settle) {
				return
			}
			select {
			case <-f.changed:
			default:
			}
		case <-timer.C:
		}
		if err := f.load(ctx); err == nil {
			err = f.l.join()
			wait, retry = f.l.cfg.Refresh, firstRetry
			f.report(ctx, err)
		} else {
			f.report(ctx, err)
			wait, retry = min(retry, f.l.cfg.Refresh), 2*retry
		}
		timer.Reset(wait)
	}
}

func (f *follow) report(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.l.say(f.s, fmt.Errorf("kept as it was: %w", err))
}

// pause waits; false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch follows a file through the directory that it is in, since editors
// replace files, or a directory itself.
func (f *follow) watch() (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	dir := f.s.Spec
	if !isDir(dir) {
		dir = filepath.Dir(dir)
	}
	if err := w.Add(dir); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// relay signals what w sees, until it is closed.
func (f *follow) relay(w *fsnotify.Watcher) {
	whole := isDir(f.s.Spec)
	for {
		select {
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			if e.Op != fsnotify.Chmod && (whole && toolFile(filepath.Base(e.Name)) || !whole && filepath.Base(e.Name) == filepath.Base(f.s.Spec)) {
				f.signal()
			}
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			f.signal() // events were lost: look again
		}
	}
}
