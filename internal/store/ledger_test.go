package store_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir) // until it is killed
	}
	goleak.VerifyTestMain(m)
}

func TestMemory(t *testing.T) {
	storetest.Run(t, func(_ storetest.T, c storetest.Config) store.Ledger {
		m := store.NewMemory(c.Bytes)
		m.TTL, m.Now = c.TTL, c.Now
		return m
	})
}

func TestFile(t *testing.T) {
	dirs := t.TempDir()
	open := func(cache int) func(t storetest.T, c storetest.Config) store.Ledger {
		return func(t storetest.T, c storetest.Config) store.Ledger {
			t.Helper()
			dir, err := os.MkdirTemp(dirs, "")
			if err != nil {
				t.Fatal(err)
			}
			f, err := store.OpenFile(store.FileConfig{Dir: dir, Key: testKey, MaxBytes: int64(c.Bytes), CacheBytes: cache, TTL: c.TTL, Now: c.Now})
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	storetest.Run(t, open(0))
	t.Run("uncached", func(t *testing.T) { storetest.Run(t, open(1)) })
}
