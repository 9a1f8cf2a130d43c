package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of one listing, beside those of [Limits].
const maxPages = 1000

// An mcpServer is an open session with an MCP server. It is used by one
// goroutine.
type mcpServer struct {
	source  Source
	session *mcp.ClientSession
	raw     *listings
}

// dialMCP connects. changed, if not nil, is called when the server says that
// its list of tools has changed.
func dialMCP(ctx context.Context, s Source, changed func()) (*mcpServer, error) {
	srv := &mcpServer{source: s, raw: &listings{asked: map[jsonrpc.ID]bool{}}}
	var opts mcp.ClientOptions
	if changed != nil {
		opts.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) { changed() }
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "sidecar", Version: "1"}, &opts)
	var t mcp.Transport
	if s.kind == mcpStdio {
		cmd := exec.Command(s.argv[0], s.argv[1:]...)
		cmd.Stderr = os.Stderr
		t = recorded{&mcp.CommandTransport{Command: cmd}, srv.raw}
	} else {
		c := s.client()
		c.Transport = tee{cmp.Or[http.RoundTripper](c.Transport, http.DefaultTransport), srv.raw}
		t = &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: c, DisableStandaloneSSE: changed == nil}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var err error
	// The session ends with close, not with the context of the connect.
	if srv.session, err = client.Connect(ctx, t, nil); err != nil {
		return nil, err
	}
	return srv, nil
}

func (m *mcpServer) close() { _ = m.session.Close() }

// load lists all tools, page by page.
func (m *mcpServer) load(ctx context.Context) (*Catalog, []Problem, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	l := newLoader()
	l.mend = true
	server := ""
	if info := m.session.InitializeResult(); info != nil && info.ServerInfo != nil {
		server = toolName(info.ServerInfo.Name, 24)
	}
	if m.source.Name != "" {
		server = m.source.Name
	}
	seen := map[string]bool{"": true}
	cursor := ""
	entry := 0
	var total int64
	for page := 1; ; page++ {
		res, err := m.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, l.problems, &FileError{m.source.Spec, fmt.Errorf("tools/list, page %d: %w", page, err)}
		}
		raw, err := m.raw.take()
		if err != nil {
			return nil, l.problems, &FileError{m.source.Spec, fmt.Errorf("tools/list, page %d: %w", page, err)}
		}
		if total += int64(len(raw)); total > l.lim.FileBytes {
			return nil, l.problems, &FileError{m.source.Spec, fmt.Errorf("tools/list of more than %d MB", l.lim.FileBytes>>20)}
		}
		tools, err := toolList(raw)
		if err != nil {
			return nil, l.problems, &FileError{m.source.Spec, fmt.Errorf("tools/list, page %d: %w", page, err)}
		}
		for _, t := range tools {
			entry++
			l.add(Problem{File: m.source.Spec, Entry: entry}, server, t)
		}
		if cursor = res.NextCursor; cursor == "" {
			break
		}
		if seen[cursor] {
			return nil, l.problems, &FileError{m.source.Spec, fmt.Errorf("tools/list, page %d: cursor %.40q again; the pages go round", page, cursor)}
		}
		seen[cursor] = true
		if page == maxPages {
			return nil, l.problems, &FileError{m.source.Spec, fmt.Errorf("tools/list of more than %d pages", maxPages)}
		}
	}
	return l.catalog(m.source.Label())
}

// listings keeps the bytes of tools/list answers. The SDK decodes schemas into
// maps, which forget the order of properties, and models write arguments in
// the order that they were shown.
type listings struct {
	mu    sync.Mutex // guards all below
	asked map[jsonrpc.ID]bool
	last  []byte // stdio: the result; HTTP: what was read of the body so far
	http  bool
}

// take gives the result of the last tools/list.
func (l *listings) take() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw := l.last
	l.last = nil
	if !l.http {
		return raw, nil
	}
	// A JSON body, or a stream of events of which one is the answer.
	messages := [][]byte{raw}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		messages = messages[:0]
		var data []byte
		for line := range bytes.Lines(raw) {
			line = bytes.TrimRight(line, "\r\n")
			if d, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(data, d...)
			} else if len(line) == 0 && len(data) > 0 {
				messages, data = append(messages, data), nil
			}
		}
	}
	for _, m := range messages {
		var answer struct {
			Result json.RawMessage `json:"result"`
		}
		if json.Unmarshal(m, &answer) == nil && answer.Result != nil {
			return answer.Result, nil
		}
	}
	return nil, errors.New("no result in the answer")
}

// recorded is a stdio transport that puts tools/list answers into raw.
type recorded struct {
	mcp.Transport
	raw *listings
}

func (r recorded) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := r.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return recorder{c, r.raw}, nil
}

type recorder struct {
	mcp.Connection
	raw *listings
}

func (r recorder) Write(ctx context.Context, m jsonrpc.Message) error {
	if req, ok := m.(*jsonrpc.Request); ok && req.Method == "tools/list" {
		r.raw.mu.Lock()
		r.raw.asked[req.ID] = true
		r.raw.mu.Unlock()
	}
	return r.Connection.Write(ctx, m)
}

func (r recorder) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := r.Connection.Read(ctx)
	if resp, ok := m.(*jsonrpc.Response); ok {
		r.raw.mu.Lock()
		if r.raw.asked[resp.ID] {
			delete(r.raw.asked, resp.ID)
			r.raw.last = resp.Result
		}
		r.raw.mu.Unlock()
	}
	return m, err
}

// tee copies what is read of tools/list answers into raw. (The connections of
// the SDK's HTTP transport can't be wrapped: they have a method of their own.)
type tee struct {
	http.RoundTripper
	raw *listings
}

func (t tee) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost || req.GetBody == nil {
		return t.RoundTripper.RoundTrip(req)
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	var call struct {
		Method string `json:"method"`
	}
	err = json.NewDecoder(body).Decode(&call)
	body.Close()
	if err != nil || call.Method != "tools/list" {
		return t.RoundTripper.RoundTrip(req)
	}
	resp, err := t.RoundTripper.RoundTrip(req)
	if err == nil {
		t.raw.mu.Lock()
		t.raw.http, t.raw.last = true, nil
		t.raw.mu.Unlock()
		resp.Body = &teeBody{resp.Body, t.raw}
	}
	return resp, err
}

type teeBody struct {
	io.ReadCloser
	raw *listings
}

func (b *teeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.raw.mu.Lock()
	defer b.raw.mu.Unlock()
	if b.raw.last = append(b.raw.last, p[:n]...); int64(len(b.raw.last)) > DefaultLimits.FileBytes {
		return n, fmt.Errorf("tools/list of more than %d MB", DefaultLimits.FileBytes>>20)
	}
	return n, err
}
