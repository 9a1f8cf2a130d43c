package store_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolsidecar/sidecar/internal/racetest"
	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/internal/store/storetest"
	"github.com/toolsidecar/sidecar/prefix"
)

var testKey = []byte("a key of the tests, 16 bytes or more")

// openFile opens a ledger and returns the lines that it logs with it.
func openFile(t testing.TB, dir string, edit func(*store.FileConfig)) (*store.File, *[]string) {
	t.Helper()
	lines := &[]string{}
	cfg := store.FileConfig{Dir: dir, Key: testKey, MaxBytes: 64 << 20, Log: func(l string) { *lines = append(*lines, l) }}
	if edit != nil {
		edit(&cfg)
	}
	f, err := store.OpenFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, lines
}

func segments(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("segments in %s: %v, %v", dir, paths, err)
	}
	return paths
}

func entry(i int) *prefix.Entry {
	return &prefix.Entry{Conversation: storetest.Name(i % 7), Text: fmt.Sprintf("the secret text of entry %d", i), Replaced: true}
}

// TestReopen: what was put is there after closing, and nothing of it can be read in
// the files.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	f, _ := openFile(t, dir, nil)
	for i := range 100 {
		f.Put(storetest.Key(i), entry(i))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range segments(t, dir) {
		b, err := os.ReadFile(path)
		if err != nil || bytes.Contains(b, []byte("secret")) {
			t.Errorf("%s holds the text, or %v", path, err)
		}
	}
	f, lines := openFile(t, dir, nil)
	for i := range 100 {
		if e, ok := f.Get(storetest.Key(i)); !ok || e.Text != entry(i).Text {
			t.Errorf("entry %d: %+v, %v", i, e, ok)
		}
	}
	if len(*lines) > 0 {
		t.Errorf("logged: %q", *lines)
	}
}

// TestOneProcess: a directory is open once.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	openFile(t, dir, nil)
	if _, err := store.OpenFile(store.FileConfig{Dir: dir, Key: testKey, MaxBytes: 1 << 20}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the second OpenFile: %v", err)
	}
}

// TestRotation: with another key the ledger starts empty and says so.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	f, _ := openFile(t, dir, nil)
	f.Put(storetest.Key(1), entry(1))
	f.Close()
	f, lines := openFile(t, dir, func(c *store.FileConfig) { c.Key = []byte("another key of the tests") })
	if _, ok := f.Get(storetest.Key(1)); ok {
		t.Error("another key reads the entry")
	}
	if len(*lines) != 1 || !strings.Contains((*lines)[0], "another key") {
		t.Errorf("logged: %q", *lines)
	}
	f.Put(storetest.Key(2), entry(2))
	f.Close()
	f, _ = openFile(t, dir, func(c *store.FileConfig) { c.Key = []byte("another key of the tests") })
	if _, ok := f.Get(storetest.Key(2)); !ok {
		t.Error("an entry of the new key is gone")
	}
}

// TestDamage cuts and overwrites the files at many places: what is found is what
// was put, the rest is gone, at most three entries around one damaged place, and a
// line says so.
func TestDamage(t *testing.T) {
	const n = 60
	whole := t.TempDir()
	f, _ := openFile(t, whole, nil)
	path := segments(t, whole)[0]
	ends := map[int]bool{} // of records: a cut there can't be noticed
	for i := range n {
		f.Put(storetest.Key(i), entry(i))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends[int(info.Size())] = true
	}
	f.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, b []byte, least int) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, lines := openFile(t, dir, nil)
		found := 0
		for i := range n {
			e, ok := f.Get(storetest.Key(i))
			if ok && e.Text != entry(i).Text {
				t.Fatalf("%s: entry %d reads %q", what, i, e.Text)
			}
			if ok {
				found++
			}
		}
		if found < least || found == n {
			t.Errorf("%s: %d of %d entries are left", what, found, n)
		}
		if len(*lines) == 0 {
			t.Errorf("%s: nothing is logged", what)
		}
		f.Put(storetest.Key(n), entry(n)) // and it goes on
		f.Close()
		f, _ = openFile(t, dir, nil)
		if e, ok := f.Get(storetest.Key(n)); !ok || e.Text != entry(n).Text {
			t.Errorf("%s: a new entry is gone", what)
		}
		f.Close()
	}
	size := (len(good)-16)/n + 2 // of the longest record
	for at := 0; at < len(good); at += 797 {
		if at > 16 && !ends[at] {
			try(fmt.Sprintf("cut at %d", at), good[:at], (at-16)/size)
		}
		b := bytes.Clone(good)
		b[at] ^= 0x40
		least := n - 1
		if at < 16 {
			least = 0
		}
		try(fmt.Sprintf("one bit at %d", at), b, least)
		b = bytes.Clone(good)
		copy(b[at:], make([]byte, 100))
		if at >= 16 {
			try(fmt.Sprintf("100 zeros at %d", at), b, n-3)
		}
	}
	try("empty", nil, 0)
	try("another file", []byte(strings.Repeat("not a ledger at all\n", 50)), 0)
}

// TestSwapped: an entry under another's key is not taken for its own.
func TestSwapped(t *testing.T) {
	dir := t.TempDir()
	f, _ := openFile(t, dir, nil)
	f.Put(storetest.Key(1), &prefix.Entry{Text: "one"})
	f.Put(storetest.Key(2), &prefix.Entry{Text: "two"})
	f.Close()
	path := segments(t, dir)[0]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const head = 60
	size := (len(b) - 16) / 2
	one, two := b[16+head:16+size], b[16+size+head:]
	swap := bytes.Clone(one)
	copy(one, two)
	copy(two, swap)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, lines := openFile(t, dir, nil)
	for i := 1; i <= 2; i++ {
		if e, ok := f.Get(storetest.Key(i)); ok {
			t.Errorf("under key %d stands %q", i, e.Text)
		}
	}
	if len(*lines) == 0 {
		t.Error("nothing is logged")
	}
}

// TestDeletedOnDisk: a deleted conversation is not in the files, nor does an older
// version of its entries come back.
func TestDeletedOnDisk(t *testing.T) {
	dir := t.TempDir()
	f, _ := openFile(t, dir, nil)
	n := storetest.Name(3)
	for version := range 3 {
		for i := range 50 {
			f.Put(storetest.Key(i), &prefix.Entry{Conversation: storetest.Name(i % 5), Text: fmt.Sprint(version)})
		}
	}
	if got, err := f.Delete(n); got != 10 || err != nil {
		t.Fatalf("Delete = %d, %v", got, err)
	}
	f.Close()
	for _, path := range segments(t, dir) {
		if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, n[:]) {
			t.Errorf("%s names the conversation, or %v", path, err)
		}
	}
	f, _ = openFile(t, dir, nil)
	for i := range 50 {
		if e, ok := f.Get(storetest.Key(i)); ok != (i%5 != 3) || ok && e.Text != "2" {
			t.Errorf("entry %d: found is %v", i, ok)
		}
	}
}

// TestFilesKeepToBound: however much is put, the files take no more than their
// bound and a record.
func TestFilesKeepToBound(t *testing.T) {
	dir := t.TempDir()
	const bound = 2 << 20
	f, lines := openFile(t, dir, func(c *store.FileConfig) { c.MaxBytes, c.CacheBytes = bound, 1 })
	text := strings.Repeat("x", 3000)
	for i := range 3000 {
		f.Put(storetest.Key(i), &prefix.Entry{Text: text})
		if i%2 == 0 {
			f.Get(storetest.Key(i / 2 * 2 % 400)) // some stay in use, so that segments are mixed
		}
		if i%500 == 0 {
			total := int64(0)
			for _, path := range segments(t, dir) {
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				total += info.Size()
			}
			if total > bound {
				t.Fatalf("the files take %d bytes, bound is %d", total, bound)
			}
		}
	}
	if len(*lines) > 0 {
		t.Errorf("logged: %q", *lines)
	}
	held, _, _ := f.Stats()
	f.Close()
	f, _ = openFile(t, dir, func(c *store.FileConfig) { c.MaxBytes = bound })
	if again, _, _ := f.Stats(); again != held {
		t.Errorf("%d entries were held, %d are after opening anew", held, again)
	}
}

// TestSmallerBound: a ledger that is opened with less room keeps to that.
func TestSmallerBound(t *testing.T) {
	dir := t.TempDir()
	f, _ := openFile(t, dir, nil)
	text := strings.Repeat("x", 3000)
	for i := range 2000 {
		f.Put(storetest.Key(i), &prefix.Entry{Text: text})
	}
	f.Close()
	f, _ = openFile(t, dir, func(c *store.FileConfig) { c.MaxBytes = 1 << 20 })
	if _, ok := f.Get(storetest.Key(1999)); !ok {
		t.Error("the last entry is gone")
	}
	if _, n, _ := f.Stats(); n > 1<<20 {
		t.Errorf("%d bytes are held", n)
	}
}

// The child of TestKill writes conversations of perConversation entries into the
// ledger in childDir and prints a dot for each thousand.
const (
	childDir        = "SIDECAR_TEST_LEDGER"
	perConversation = 4
	killBytes       = 1 << 30
)

func child(dir string) {
	f, err := store.OpenFile(store.FileConfig{Dir: dir, Key: testKey, MaxBytes: killBytes})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		for j := range perConversation {
			f.Put(storetest.Key(i*perConversation+j), conversation(i, j))
		}
		if i%1000 == 999 {
			fmt.Println(i + 1)
		}
	}
}

// conversation is the j-th entry of conversation i: a decision with late tools, a
// reply, its alias, a shortened observation.
func conversation(i, j int) *prefix.Entry {
	e := &prefix.Entry{Conversation: storetest.Name(i)}
	switch j {
	case 0:
		e.Late = []*prefix.Block{{Query: "weather in Oslo", Tools: []prefix.Shown{{Name: "get_weather", JSON: strings.Repeat(`{"type": "function"}`, 20)}}}}
	case 1:
		e.Replaced, e.Text = true, fmt.Sprint(i, strings.Repeat(" reply", 30))
	case 2:
		k := storetest.Key(i)
		e.Origin = &k
	case 3:
		e.Replaced, e.Text = true, strings.Repeat("observation ", 60)
	}
	return e
}

// TestKill kills a process that writes, with SIGKILL, once it has written 100,000
// conversations, and opens its ledger: what the process had said it wrote is there,
// within two seconds.
func TestKill(t *testing.T) {
	want := 100_000
	if testing.Short() || racetest.Enabled {
		want = 5_000
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	written := 0
	for written < want && lines.Scan() {
		if _, err := fmt.Sscan(lines.Text(), &written); err != nil {
			t.Errorf("the child says %q", lines.Text())
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended by itself: %v", err)
	}
	start, before := time.Now(), processorTime(t)
	f, logged := openFile(t, dir, func(c *store.FileConfig) { c.MaxBytes = killBytes })
	took, busy := time.Since(start), processorTime(t)-before
	for i := range written {
		j := i % perConversation
		e, ok := f.Get(storetest.Key(i*perConversation + j))
		if !ok || !reflect.DeepEqual(e, conversation(i, j)) {
			t.Fatalf("entry %d of conversation %d: %+v, %v", j, i, e, ok)
		}
	}
	n, size, _ := f.Stats()
	t.Logf("%d conversations, %d entries, %d bytes: open after %v, %v of a processor; logged %q", written, n, size, took, busy, *logged)
	if busy > 2*time.Second { // the clock also counts what else runs here
		t.Errorf("opening took %v of a processor, more than 2 s", busy)
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkGet looks up entries of a ledger of 100,000 conversations, in no order,
// with next to nothing in memory, and reports the 99th percentile.
func BenchmarkGet(b *testing.B) {
	const conversations = 100_000
	for _, cache := range []int{1, 256 << 20} {
		b.Run(fmt.Sprintf("cache=%d", cache), func(b *testing.B) {
			f, _ := openFile(b, b.TempDir(), func(c *store.FileConfig) { c.MaxBytes, c.CacheBytes = killBytes, cache })
			for i := range conversations {
				for j := range perConversation {
					f.Put(storetest.Key(i*perConversation+j), conversation(i, j))
				}
			}
			reportP99(b, func(i int) bool {
				_, ok := f.Get(storetest.Key(i * 7919 % (conversations * perConversation)))
				return ok
			})
		})
	}
}
