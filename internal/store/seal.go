package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// MinKey is the least length of a master key in bytes. It is a key, not a
// password: nothing slows down whoever guesses it.
const MinKey = 16

// Derive makes a key of 32 bytes for one use out of the master key. The uses are
// told apart by name, so that none of the keys says anything about another.
func Derive(master []byte, use string) ([]byte, error) {
	if len(master) < MinKey {
		return nil, fmt.Errorf("a key of %d bytes; at least %d are needed", len(master), MinKey)
	}
	return hkdf.Key(sha256.New, master, nil, "sidecar ledger "+use, 32)
}

// sealer encrypts entries by AES-256-GCM with a random nonce in front. A random
// nonce serves for 2³² entries of one key (NIST SP 800-38D, 8.3): at a thousand a
// second for 49 days, after which the odds of two equal nonces are still one in
// 2³³.
type sealer struct {
	aead cipher.AEAD
	id   [8]byte // names the key, tells nothing about it
}

func newSealer(master []byte) (*sealer, error) {
	key, err := Derive(master, "entries")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	s := &sealer{}
	if s.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, err
	}
	id, err := Derive(master, "key id")
	copy(s.id[:], id)
	return s, err
}

// seal appends plain, encrypted, to dst. about is authenticated with it.
func (s *sealer) seal(dst, plain, about []byte) []byte {
	return s.aead.Seal(dst, nil, plain, about)
}

// open decrypts what seal made, in place.
func (s *sealer) open(sealed, about []byte) ([]byte, error) {
	return s.aead.Open(sealed[:0], nil, sealed, about)
}
