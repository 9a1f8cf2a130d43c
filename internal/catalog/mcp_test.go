package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// TestMain makes the test program an MCP server over stdio when it is asked to.
func TestMain(m *testing.M) {
	if os.Getenv("CATALOG_TEST_MCP") != "" {
		s := toyServer(3, 0)
		if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// toyServer has n tools whose properties are not in the order of the alphabet.
func toyServer(n, pageSize int) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "Toy Server", Version: "1"}, &mcp.ServerOptions{PageSize: pageSize})
	for i := range n {
		s.AddTool(toyTool(fmt.Sprintf("files.read%d", i), "Reads"), noCall)
	}
	return s
}

func toyTool(name, about string) *mcp.Tool {
	return &mcp.Tool{Name: name, Description: about, InputSchema: json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string"},"area":{"type":"integer"}}}`)}
}

func noCall(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return nil, errors.New("not called here")
}

func serveMCP(t *testing.T, s *mcp.Server) string {
	t.Helper()
	h := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		if r.Header.Get("Authorization") != "Bearer secret" {
			return nil
		}
		return s
	}, nil)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL + "/mcp"
}

func source(t *testing.T, text string) Source {
	t.Helper()
	s, err := ParseSource(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Token = "secret"
	return s
}

const toyRaw = `{"type":"function","function":{"name":"files_read0","description":"Reads","parameters":{"type":"object","properties":{"zone":{"type":"string"},"area":{"type":"integer"}}}}}`

func TestMCPOverHTTP(t *testing.T) {
	c, problems, err := source(t, serveMCP(t, toyServer(25, 10))).Load(t.Context())
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if c.Len() != 25 || string(c.Tools()[0].Raw) != toyRaw || c.Tools()[0].Server != "Toy_Server" {
		t.Errorf("%d tools, first %s of %q", c.Len(), c.Tools()[0].Raw, c.Tools()[0].Server)
	}
}

func TestMCPOverStdio(t *testing.T) {
	t.Setenv("CATALOG_TEST_MCP", "1")
	c, problems, err := source(t, "toy=stdio:"+os.Args[0]).Load(t.Context())
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if c.Len() != 3 || string(c.Tools()[0].Raw) != toyRaw || c.Tools()[0].Server != "toy" || c.Name() != "toy" {
		t.Errorf("%d tools, first %s of %q", c.Len(), c.Tools()[0].Raw, c.Tools()[0].Server)
	}
}

func TestMCPRefused(t *testing.T) {
	wrong := source(t, serveMCP(t, toyServer(1, 0)))
	wrong.Token = "other"
	for _, s := range []Source{wrong, source(t, "http://127.0.0.1:1/mcp"), source(t, "stdio:no-such-command-anywhere")} {
		_, _, err := s.Load(t.Context())
		var fe *FileError
		if !errors.As(err, &fe) || fe.File != s.Spec || strings.Contains(err.Error(), s.Token) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// A server may be broken or hostile in how it pages.
func TestMCPPages(t *testing.T) {
	for name, x := range map[string]struct {
		page func(cursor string) string
		want string
	}{
		"round": {func(cursor string) string { return `{"tools":[],"nextCursor":"a"}` }, "the pages go round"},
		"endless": {func(cursor string) string { return fmt.Sprintf(`{"tools":[],"nextCursor":"%sx"}`, cursor) },
			"more than 1000 pages"},
		"none":    {func(string) string { return `{"tools":[]}` }, "no usable tool"},
		"no list": {func(string) string { return `{"tools":{}}` }, "tools/list, page 1"},
		"names": {func(string) string {
			return `{"tools":[{"name":"a.b","inputSchema":{}},{"name":"a/b","inputSchema":{}},{"name":"日本","inputSchema":{}},{"name":"x","description":"\u0007","inputSchema":{}}]}`
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(rawMCP(x.page))
			defer srv.Close()
			c, problems, err := source(t, srv.URL).Load(t.Context())
			if x.want != "" {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Fatalf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if names(c) != "Raw:a_b Raw:a_b_2 Raw:tool_"+digest("日本") || len(problems) != 1 {
				t.Errorf("%s, %v", names(c), problems)
			}
		})
	}
}

// rawMCP speaks just enough of the protocol to say anything.
func rawMCP(page func(cursor string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var call struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Cursor          string `json:"cursor"`
				ProtocolVersion string `json:"protocolVersion"`
			} `json:"params"`
		}
		if json.Unmarshal(body, &call) != nil || call.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch call.Method {
		case "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"Raw","version":"1"}}}`, call.ID)
		case "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, page(call.Params.Cursor))
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, call.ID)
		}
	}
}
