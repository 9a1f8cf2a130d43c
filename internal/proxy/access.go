package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/openai"
)

// A Client is an entry of the clients section: who it is, and what it may use.
type Client struct {
	Name  string
	Keys  []string // API keys, or sha256: and the hexadecimal SHA-256 of one
	Rules catalog.AccessRules
}

// DefaultClient is the name of the entry for keys that no other has.
const DefaultClient = "default"

// Clients says what each client may use. It is immutable.
type Clients struct {
	byKey   map[[sha256.Size]byte]*Client
	unknown *Client
}

// nobody has no tool: it stands for unknown keys where no entry is the default. A
// restricted client must not get more by leaving out its key.
var nobody = &Client{Name: "unknown", Rules: catalog.AccessRules{Deny: []string{"*"}}}

const hashedKey = "sha256:"

// ClientError is an entry that can't be: a pattern that is none, a key that another
// has or that no client can send, none at all where it is not the default.
type ClientError struct {
	At   int // of the entry, from 0
	Name string
	Err  error
}

func (e *ClientError) Error() string { return fmt.Sprintf("client %s: %v", e.Name, e.Err) }

func (e *ClientError) Unwrap() error { return e.Err }

// NewClients checks entries. The error is a [*ClientError].
func NewClients(list []Client) (*Clients, error) {
	c := &Clients{byKey: make(map[[sha256.Size]byte]*Client), unknown: nobody}
	for i := range list {
		if err := c.add(&list[i]); err != nil {
			return nil, &ClientError{i, list[i].Name, err}
		}
	}
	return c, nil
}

func (c *Clients) add(one *Client) error {
	if err := one.Rules.Check(); err != nil {
		return err
	}
	if one.Name == DefaultClient {
		if len(one.Keys) > 0 {
			return errors.New("it is for the keys that no other entry has, and takes none")
		}
		c.unknown = one
		return nil
	}
	if len(one.Keys) == 0 {
		return errors.New("no key")
	}
	for _, key := range one.Keys {
		sum := sha256.Sum256([]byte(key))
		if digits, ok := strings.CutPrefix(key, hashedKey); ok {
			raw, err := hex.DecodeString(digits)
			if err != nil || len(raw) != sha256.Size {
				return errors.New("sha256: and 64 hexadecimal digits are expected")
			}
			sum = [sha256.Size]byte(raw)
		} else if key == "" || strings.ContainsFunc(key, unicode.IsSpace) {
			return errors.New("a key that is empty or has a space, which no client can send; write it without Bearer")
		}
		if other := c.byKey[sum]; other != nil {
			return fmt.Errorf("it has the same key as %s", other.Name)
		}
		c.byKey[sum] = one
	}
	return nil
}

// Default says whether an entry is there for unknown keys; without one they have no
// tool.
func (c *Clients) Default() bool { return c.unknown != nobody }

const bearer = "Bearer"

// credentials reads the value of an Authorization header: a scheme in whatever case,
// one or more spaces, the key (RFC 9110, sections 11.1 and 11.4). A key alone is
// taken for a bearer's. The scheme Bearer is given in this spelling, others in lower
// case.
func credentials(authorization string) (scheme, key string) {
	scheme, key, _ = strings.Cut(strings.TrimSpace(authorization), " ")
	key = strings.TrimSpace(key)
	switch {
	case strings.EqualFold(scheme, bearer):
		return bearer, key
	case key == "":
		return bearer, scheme
	}
	return strings.ToLower(scheme), key
}

// of is the entry for the value of an Authorization header.
func (c *Clients) of(authorization string) *Client {
	scheme, key := credentials(authorization)
	if one := c.byKey[sha256.Sum256([]byte(key))]; one != nil && key != "" && scheme == bearer {
		return one
	}
	return c.unknown
}

// everyone may use everything: there is no clients section.
var everyone = &Client{}

func (s *stages) client(req *Request) *Client {
	if s.cfg.Clients == nil {
		return everyone
	}
	return s.cfg.Clients.of(tenant(req))
}

// permitted cuts a turn's tools to those that its client may use, before anything
// is made of them: they are neither ranked, counted nor named.
func (s *stages) permitted(c *Client, whole *catalog.Catalog) (*catalog.Catalog, error) {
	if whole == nil {
		return nil, nil
	}
	return s.tools.Permitted(whole, &c.Rules)
}

// mayUse says whether a tool of the turn's set is allowed to its client. The set is
// cut already; this asks the rules again where a tool becomes callable.
func (t *turn) mayUse(i int) bool {
	return t.client.Rules.Permits(t.set.Index().Tool(i), i < t.set.Client())
}

// withheld judges a request that would be forwarded as it is: the tools which the
// client brings itself must all be its to use. What can't be judged is refused.
func (s *stages) withheld(req *Request, o *openai.Object) *openai.Error {
	c := s.client(req)
	if c.Rules.All() {
		return nil
	}
	refuse := func(what string) *openai.Error {
		return &openai.Error{Status: http.StatusForbidden, Type: invalidRequest, Code: "tool_not_allowed", Param: "tools",
			Message: "This client may not use " + what + "."}
	}
	if v, ok := o.Get("functions"); ok && v.Kind() != 'n' {
		return refuse("the legacy field functions, whose tools are not checked")
	}
	tools, ok := o.Get("tools")
	if !ok || tools.Kind() == 'n' {
		return nil
	}
	own, err := s.tools.FromClient(tools.Raw)
	if err != nil {
		return refuse("tools that can't be checked: " + cutText(err.Error(), 200))
	}
	for i := range own.Tools() {
		if t := &own.Tools()[i]; !c.Rules.Permits(t, true) {
			return refuse("the tool " + t.Name)
		}
	}
	return nil
}

// operator says whether a request is that of whoever runs the sidecar: without a
// key, from the machine itself, not forwarded by another server, and where no
// clients are told apart.
func (s *stages) operator(req *Request) bool {
	return s.cfg.Clients == nil && req.Local && tenant(req) == "" && req.Header.Get("X-Forwarded-For") == "" && req.Header.Get("Forwarded") == "" && req.Header.Get("Via") == ""
}
