package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/retrieval"
	"github.com/toolsidecar/sidecar/retrieval/usage"
)

func anEvent(word, tool string) usage.Event {
	return usage.Event{Tools: []string{tool}, Trace: retrieval.Trace{Words: []retrieval.Word{{Text: word, Weight: 1}}}}
}

func openUsageAt(t *testing.T, cfg UsageConfig) *Usage {
	t.Helper()
	u, err := OpenUsage(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

func teach(t *testing.T, u *Usage, tenant string, e usage.Event) {
	t.Helper()
	if err := u.Learn(tenant, e); err != nil {
		t.Fatal(err)
	}
}

// TestUsageFile: what was learned is there after a restart, without Close too, in
// tenants of the same ids; a line that was cut is dropped and said.
func TestUsageFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "usage.jsonl")
	now := time.Unix(1000, 0)
	var log []string
	cfg := UsageConfig{Path: path, Now: func() time.Time { return now }, Log: func(line string) { log = append(log, line) }}
	u := openUsageAt(t, cfg)
	one, two := u.Tenant("one"), u.Tenant("two")
	if one == two || strings.Contains(one, "one") {
		t.Fatalf("tenants %s and %s", one, two)
	}
	teach(t, u, one, anEvent("a", "x"))
	teach(t, u, one, anEvent("b", "y"))
	teach(t, u, two, anEvent("a", "z"))
	want := u.Memory(one).Events()
	if _, err := OpenUsage(cfg); err == nil || !strings.Contains(err.Error(), path+": another process") || !strings.Contains(err.Error(), "/sidecar/v1/usage") {
		t.Errorf("opened twice: %v", err)
	}
	u.lock.Close() // as when the process is killed
	u.lock = nil

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, `{"tenant":"%s","event":{"tools":["cut`, one)
	f.Close()
	u = openUsageAt(t, cfg)
	if got := u.Memory(u.Tenant("one")).Events(); !reflect.DeepEqual(got, want) {
		t.Errorf("after the restart %v, want %v", got, want)
	}
	if len(log) != 1 || !strings.Contains(log[0], "1 lines") {
		t.Errorf("log %q", log)
	}
	if got := u.Tenants(); len(got) != 2 {
		t.Errorf("tenants %v", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	held := u.Memory(one)
	if n, err := u.Clear(one); n != 2 || err != nil {
		t.Errorf("cleared %d, %v", n, err)
	}
	if n, _, _ := held.Stats(); n != 0 {
		t.Error("a search that holds the memory still sees it")
	}
	raw, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(raw), one) || !strings.Contains(string(raw), two) {
		t.Errorf("the file after clearing: %s, %v", raw, err)
	}
	if n, err := u.Clear(one); n != 0 || err != nil {
		t.Errorf("cleared again: %d, %v", n, err)
	}
}

// TestUsageForeign: a file that holds something else is not touched.
func TestUsageForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	const text = `{"messages":[]}` + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var foreign *NotUsageError
	if _, err := OpenUsage(UsageConfig{Path: path}); !errors.As(err, &foreign) {
		t.Errorf("error %v", err)
	}
	if raw, _ := os.ReadFile(path); string(raw) != text {
		t.Errorf("the file is %q", raw)
	}
}

// TestUsageBounds: all tenants together keep the bound, and the file follows.
func TestUsageBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	at := int64(0)
	cfg := UsageConfig{Path: path, MaxBytes: 256 << 10, Now: func() time.Time { at++; return time.Unix(at, 0) }}
	u := openUsageAt(t, cfg)
	for i := range 6000 {
		e := anEvent(fmt.Sprint("word", i), fmt.Sprint("tool", i%50))
		e.Trace.Vector, e.Trace.Space = make([]int8, 256), "s"
		e.Trace.Vector[i%256] = 1
		teach(t, u, u.Tenant(fmt.Sprint(i%40)), e)
		if u.bytes > cfg.MaxBytes {
			t.Fatalf("%d bytes after %d events", u.bytes, i+1)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > int64(3*cfg.MaxBytes+2*usageSlack) {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if u.Memory(u.Tenant(fmt.Sprint(5999%40))) == nil {
		t.Error("the tenant seen last is gone")
	}
	sum := 0
	for _, id := range u.Tenants() {
		_, _, n := u.Memory(id).Stats()
		sum += n
	}
	if sum != u.bytes {
		t.Errorf("%d bytes are held, %d counted", sum, u.bytes)
	}
}

// TestUsageLongLine: a line that is no event costs nothing but itself, however long
// it is.
func TestUsageLongLine(t *testing.T) {
	for name, junk := range map[string]string{
		"longer than a line": strings.Repeat("x", 3*maxUsageLine),
		"zeros":              strings.Repeat("\x00", 5000),
		"another kind":       `{"tenant":"t","event":{"tools":7}}`,
	} {
		path := filepath.Join(t.TempDir(), "usage.jsonl")
		var log []string
		cfg := UsageConfig{Path: path, Log: func(line string) { log = append(log, line) }}
		u := openUsageAt(t, cfg)
		teach(t, u, "t", anEvent("a", "x"))
		u.file.WriteString(junk + "\n")
		teach(t, u, "t", anEvent("b", "y"))
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		u = openUsageAt(t, cfg)
		if queries, _, _ := u.Memory("t").Stats(); queries != 2 || len(log) != 1 || !strings.Contains(log[0], "1 lines") {
			t.Errorf("%s: %d queries, log %q", name, queries, log)
		}
		if raw, err := os.ReadFile(path); err != nil || len(raw) > 2000 {
			t.Errorf("%s: the file has %d bytes, %v", name, len(raw), err)
		}
	}
}

// TestUsageClearsAll: what was cleared is nowhere: not in what a killed process left
// of a rewrite, nor in lines of a tenant that was dropped for want of room; and
// where the file can't be written, nothing is said to be cleared.
func TestUsageClearsAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "usage.jsonl")
	left := path + usageTemp + "1"
	if err := os.WriteFile(left, []byte("of a process that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := openUsageAt(t, UsageConfig{Path: path, MaxBytes: 64 << 10})
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left, err)
	}
	teach(t, u, "first", anEvent("a", "x"))
	for i := 0; u.Memory("first") != nil; i++ {
		teach(t, u, "second", anEvent(fmt.Sprint("word", i), "y"))
	}
	if n, err := u.Clear("first"); n != 0 || err != nil {
		t.Errorf("cleared %d, %v", n, err)
	}
	if raw, err := os.ReadFile(path); err != nil || strings.Contains(string(raw), "first") {
		t.Errorf("the file holds a tenant that was cleared, %v", err)
	}

	if err := os.RemoveAll(dir); err != nil { // whoever runs this may write to any mode
		t.Fatal(err)
	}
	before, _, bytes := u.Memory("second").Stats()
	if n, err := u.Clear("second"); n != 0 || err == nil {
		t.Errorf("without a folder: cleared %d, %v", n, err)
	}
	if after, _, _ := u.Memory("second").Stats(); after != before || u.bytes != bytes {
		t.Errorf("%d queries and %d bytes are left of %d and %d", after, u.bytes, before, bytes)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if n, err := u.Clear("second"); n != before || err != nil || u.bytes != 0 {
		t.Errorf("with it: cleared %d of %d, %v, %d bytes are left", n, before, err, u.bytes)
	}
}
