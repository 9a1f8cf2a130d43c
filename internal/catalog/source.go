package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A Source is a place that tools come from, as written on a command line:
//
//	demo                        the built-in catalog
//	FILE, DIR                   see Load
//	https://host/openapi.json   a document: an OpenAPI description or a list of tools
//	https://host/mcp            an MCP server over streamable HTTP
//	stdio:COMMAND ARG…          an MCP server that is started and spoken to over stdio
//
// A URL whose path ends in .json, .jsonl, .yaml or .yml is a document, any
// other an MCP server; mcp+https:// and doc+https:// say it outright. Each may
// be named: github=https://host/mcp. The name stands before those tool names
// that several sources have.
type Source struct {
	Name string // "" if none was given
	Spec string // without the name
	kind sourceKind
	url  string   // of documents and servers
	argv []string // of stdio
	// Token is sent to URLs as "Authorization: Bearer". It is never printed.
	Token string
}

type sourceKind byte

const (
	atPath sourceKind = iota
	document
	mcpHTTP
	mcpStdio
)

var sourceName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_-]{0,31})=(.+)$`)

// ParseSource reads what stands on a command line or in a config file.
func ParseSource(text string) (Source, error) {
	s := Source{Spec: text}
	// A file may have "=" in its name; what exists as written is a file.
	if m := sourceName.FindStringSubmatch(text); m != nil {
		if _, err := os.Stat(text); err != nil {
			s.Name, s.Spec = m[1], m[2]
		}
	}
	if s.Spec == "" {
		return s, errors.New("empty source")
	}
	if rest, ok := strings.CutPrefix(s.Spec, "stdio:"); ok {
		if s.argv = strings.Fields(rest); len(s.argv) == 0 {
			return s, errors.New("stdio: without a command; write stdio:COMMAND ARG…")
		}
		s.kind = mcpStdio
		return s, nil
	}
	spec, forced := s.Spec, atPath
	if rest, ok := strings.CutPrefix(spec, "mcp+"); ok {
		spec, forced = rest, mcpHTTP
	} else if rest, ok := strings.CutPrefix(spec, "doc+"); ok {
		spec, forced = rest, document
	}
	if !strings.HasPrefix(spec, "http://") && !strings.HasPrefix(spec, "https://") {
		if forced != atPath {
			return s, fmt.Errorf("%s: a URL with http:// or https:// should follow", s.Spec[:4])
		}
		return s, nil
	}
	u, err := url.Parse(spec)
	switch {
	case err != nil:
		return s, err
	case u.Host == "":
		return s, errors.New("URL without a host")
	case u.User != nil:
		return s, errors.New("URL with a user in it; give the token apart from it")
	}
	s.url, s.kind = spec, forced
	if forced == atPath {
		s.kind = mcpHTTP
		switch strings.ToLower(path.Ext(u.Path)) {
		case ".json", ".jsonl", ".ndjson", ".yaml", ".yml":
			s.kind = document
		}
	}
	return s, nil
}

// String is the source as it was written.
func (s Source) String() string {
	if s.Name != "" {
		return s.Name + "=" + s.Spec
	}
	return s.Spec
}

// Live says whether the tools of the source can change while it is open.
func (s Source) Live() bool { return s.Spec != "demo" }

// fetchTimeout bounds one whole load over a network or a pipe.
const fetchTimeout = 30 * time.Second

// Load reads the tools. What [Load] says of problems and errors holds.
func (s Source) Load(ctx context.Context) (*Catalog, []Problem, error) {
	switch s.kind {
	case mcpHTTP, mcpStdio:
		srv, err := dialMCP(ctx, s, nil)
		if err != nil {
			return nil, nil, &FileError{s.Spec, err}
		}
		defer srv.close()
		return srv.load(ctx)
	case document:
		return s.fetch(ctx)
	}
	c, problems, err := Load(ctx, s.Spec)
	if err == nil && s.Name != "" {
		c = c.named(s.Name)
	}
	return c, problems, err
}

// Label names the source in pins and for the catalog made of it.
func (s Source) Label() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Spec
}

// fetch loads a document over HTTP.
func (s Source) fetch(ctx context.Context) (*Catalog, []Problem, error) {
	l := newLoader()
	raw, err := s.get(ctx, l.lim.FileBytes)
	if err != nil {
		return nil, nil, &FileError{s.Spec, err}
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, nil, &FileError{s.Spec, err}
	}
	if err := l.text(s.Spec, strings.ToLower(path.Ext(u.Path)), "", raw); err != nil {
		return nil, l.problems, err
	}
	return l.catalog(s.Label())
}

func (s Source) get(ctx context.Context, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, application/yaml;q=0.9, */*;q=0.5")
	resp, err := s.client().Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP %s", resp.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > most {
		return nil, fmt.Errorf("larger than %d MB", most>>20)
	}
	return raw, nil
}

// client sends the token, and to no other host.
func (s Source) client() *http.Client {
	if s.Token == "" {
		return &http.Client{}
	}
	return &http.Client{Transport: bearer{s.Token, hostOf(s.url)}}
}

type bearer struct{ token, host string }

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host == b.host {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	return http.DefaultTransport.RoundTrip(req)
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

// short is a name to put before the names of tools: "github" of
// https://github.example/mcp, "pets" of files/pets.json.
func (c *Catalog) short() string {
	name := c.name
	if i := strings.Index(name, "://"); i >= 0 {
		return toolName(hostOf(name[strings.LastIndex(name[:i], "+")+1:]), 24)
	}
	if rest, ok := strings.CutPrefix(name, "stdio:"); ok {
		if argv := strings.Fields(rest); len(argv) > 0 {
			name = argv[len(argv)-1]
		}
	}
	base := filepath.Base(name)
	return toolName(strings.TrimSuffix(base, filepath.Ext(base)), 24)
}

// isOpenAPI says whether a text is an OpenAPI description, by its first keys.
func isOpenAPI(raw []byte) bool {
	head := raw[:min(len(raw), 64<<10)]
	return openAPIKey.Match(head) && bytes.Contains(raw, []byte("paths"))
}

var openAPIKey = regexp.MustCompile(`(?m)(^|[{,])\s*"?(openapi|swagger)"?\s*:\s*"?'?[0-9]`)
