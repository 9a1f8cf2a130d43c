package prefix

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// A Ledger keeps decisions by key. It may forget any entry at any time.
// Implementations are safe for concurrent use and must not change an entry
// after Put.
type Ledger interface {
	Get(Key) (*Entry, bool)
	Put(Key, *Entry)
}

// Name identifies a conversation to people, and to whoever deletes it: the start
// of a key behind its first user message, made without regard to tools, model and
// engine, so that it stays the same when these change and a new epoch begins. Conversations of one
// tenant that begin with the same words share it. The zero Name is that of what
// belongs to no single conversation, such as a front block.
type Name [8]byte

// String is the name in hexadecimal.
func (n Name) String() string { return hex.EncodeToString(n[:]) }

// ParseName reads what String writes.
func ParseName(s string) (n Name, ok bool) {
	b, err := hex.DecodeString(s)
	return Name(append(b, n[:]...)[:len(n)]), err == nil && len(b) == len(n)
}

// name is that of a conversation whose messages up to the first of a user have
// these meanings.
func (s Scope) name(meanings []Key) (n Name) {
	if len(meanings) == 0 {
		return n
	}
	s.Fingerprint = "" // the same for every model and engine
	keys := chain(s.root("name", ""), meanings)
	return s.Named(keys[len(keys)-1][:])
}

// Named is a name of the scope's tenant for what a hash stands for, of 8 bytes or
// more.
func (s Scope) Named(hash []byte) (n Name) {
	copy(n[:], hash)
	mark := s.mark()
	copy(n[:], mark[:])
	return n
}

// mark is how the names of a tenant's conversations begin.
func (s Scope) mark() (m [2]byte) {
	s.Fingerprint = ""
	root := s.root("tenant", "")
	copy(m[:], root[:])
	return m
}

// Owns says whether n can be the name of a conversation of the scope's tenant. One
// name in 65,536 of other tenants passes too.
func (s Scope) Owns(n Name) bool {
	mark := s.mark()
	return bytes.Equal(n[:len(mark)], mark[:])
}

// Entry is what was decided at one message.
type Entry struct {
	// Conversation is the one that the message belongs to.
	Conversation Name
	// Text replaces the client's text of the message when Replaced is set: the
	// generated text of an assistant turn, or a shaped observation.
	Text     string
	Replaced bool
	// Open says that the turn was cut, by length or by a client that left: what
	// stands here was generated and may be replayed, but is no finished answer.
	Open bool
	// Tokens are the ids of an assistant turn; nil when only its text is known.
	Tokens *Tokens
	// Reasoning is what the engine reported apart from Text.
	Reasoning string
	// Calls are those of an assistant message that the ledger did not have, as its
	// client first sent them, and Text and Reasoning what it sent with them: see
	// Conversation.Keep. They have no ids.
	Calls []Call
	// Late are the blocks of tools that were added after this message, in order.
	Late []*Block
	// Front is the front block of the conversation, at its root only.
	Front *Block
	// Origin is the root of the conversation, at aliases only: see Open.
	Origin *Key
}

// Tokens are the ids of an assistant turn and of what stands between it and the
// assistant turn before it. Those of a whole conversation are the Heads and
// Outputs of its assistant turns in order.
type Tokens struct {
	From Key // Sum of the turn before it whose ids are known; zero for the first
	Sum  Key // of the layout in front of the turn, see Turn.Tokens
	// Head leads from the end of the turn before to the start of generation.
	// It begins and ends with the family's framing, so that ids are joined at
	// control tokens only.
	Head IDs
	// Output was generated, without the token that ended it.
	Output IDs
}

// Block is a list of tools as they were shown.
type Block struct {
	Query string // the search that a late block answers
	// Call is the generated text that asked for a late block; "" when the sidecar
	// added it by itself, and the call is then written from Query.
	Call      string
	CallIDs   IDs // the ids of Call, when they are known
	Tools     []Shown
	Note      string // what a late block says instead of tools, when it has none
	Directory string // front block: what else exists
}

// Shown is one tool as it stands in the prompt.
type Shown struct {
	Name string
	JSON string // the bytes shown
}

// Scope separates conversations that must not see each other.
type Scope struct {
	Secret      []byte // key of the HMAC; keeps a tenant from guessing another's keys
	Tenant      string // client API key, or "" for the only tenant
	Fingerprint string // what the tokens depend on: model, family, engine version
}

func (s Scope) root(kind, of string) Key {
	mac := hmac.New(sha256.New, s.Secret)
	for _, part := range []string{kind, s.Tenant, s.Fingerprint, of} {
		field(mac, part)
	}
	return Key(mac.Sum(nil))
}
