package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolsidecar/sidecar/internal/store"
)

// ledgerConfig says where the conversations are kept.
type ledgerConfig struct {
	Where   string // memory, or file: and a directory
	TTL     time.Duration
	Key     string // of the entries in files
	KeyFile string // a file that holds it
}

// openLedger opens the ledger of a server and makes the secret of its keys, which
// must outlive the process where the ledger does.
func openLedger(cfg *ledgerConfig, maxBytes int, stderr io.Writer) (l store.Ledger, secret []byte, err error) {
	dir, isFile := strings.CutPrefix(cfg.Where, "file:")
	if !isFile || dir == "" {
		if cfg.Where != "memory" {
			return nil, nil, &usageError{fmt.Errorf("--ledger %q", cfg.Where), "give memory, or file: and a directory, as in file:/var/lib/sidecar/ledger"}
		}
		m := store.NewMemory(maxBytes)
		m.TTL = cfg.TTL
		secret = make([]byte, 32)
		_, err = rand.Read(secret)
		return m, secret, err
	}
	key, err := ledgerKey(cfg, dir, stderr)
	if err != nil {
		return nil, nil, err
	}
	if secret, err = store.Derive(key, "scope"); err != nil {
		return nil, nil, &usageError{fmt.Errorf("--ledger-key: %w", err), "make one: openssl rand -hex 32"}
	}
	f, err := store.OpenFile(store.FileConfig{
		Dir: dir, Key: key, MaxBytes: int64(maxBytes), TTL: cfg.TTL,
		Log: func(line string) { fmt.Fprintf(stderr, "sidecar: %s\n", line) },
	})
	if err != nil {
		return nil, nil, &usageError{fmt.Errorf("--ledger: %w", err), "give it a directory of its own that can be written to"}
	}
	return f, secret, nil
}

// ledgerKey is the configured key. Without one it is kept in a file beside the
// directory, which protects a copy of the directory and nothing else.
func ledgerKey(cfg *ledgerConfig, dir string, stderr io.Writer) ([]byte, error) {
	switch {
	case cfg.Key != "" && cfg.KeyFile != "":
		return nil, &usageError{errors.New("--ledger-key and --ledger-key-file are both given"), "give one of them"}
	case cfg.Key != "":
		return []byte(cfg.Key), nil
	case cfg.KeyFile != "":
		key, err := os.ReadFile(cfg.KeyFile)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--ledger-key-file: %w", err), "make one: openssl rand -hex 32 > FILE"}
		}
		return bytes.TrimSpace(key), nil
	}
	path := filepath.Clean(dir) + ".key"
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b := make([]byte, 32)
		if _, err := rand.Read(b); err != nil {
			return nil, err
		}
		key = []byte(hex.EncodeToString(b))
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = os.WriteFile(path, key, 0o600)
		}
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("--ledger: its key: %w", err), "give --ledger-key or --ledger-key-file"}
	}
	fmt.Fprintf(stderr, "sidecar: the ledger is encrypted with the key in %s; give --ledger-key-file to keep it elsewhere\n", path)
	return bytes.TrimSpace(key), nil
}
