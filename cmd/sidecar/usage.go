package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	retrievalbench "github.com/toolsidecar/sidecar/bench/retrieval"
	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/retrieval"
	retrievalusage "github.com/toolsidecar/sidecar/retrieval/usage"
)

const usageHint = "give one file for the memory, which may not exist yet, and any number of logs: JSON lines, each a conversation in OpenAI's form"

func newUsageCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "usage", Short: "What calls have taught: show, export, import and clear a usage memory", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var file, tenant string
	flags := func(c *cobra.Command, who string) *cobra.Command {
		c.Flags().StringVar(&file, "usage", "", "`FILE` of the memory, as for serve")
		c.Flags().StringVar(&tenant, "tenant", "", who)
		return c
	}
	open := func(exists bool) (*store.Usage, error) {
		if file == "" {
			return nil, &usageError{errors.New("usage: no --usage"), "name the file that 'sidecar serve --usage FILE' keeps"}
		}
		if _, err := os.Stat(file); exists && err != nil {
			return nil, &usageError{fmt.Errorf("usage: %w", err), "name the file that 'sidecar serve --usage FILE' keeps"}
		}
		return openMemory(file, cmd.ErrOrStderr())
	}
	cmd.AddCommand(
		flags(&cobra.Command{
			Use: "show", Short: "List the tenants, and how much each has taught", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				u, err := open(true)
				if err != nil {
					return err
				}
				defer u.Close()
				return showUsage(cmd.OutOrStdout(), u)
			},
		}, "the `ID` to list alone"),
		flags(&cobra.Command{
			Use: "export", Short: "Write what is remembered, a JSON line a query", Args: noArgs,
			Long: "Write what is remembered, a JSON line a query: tenant, and an event of tools, words\nwith their weights, vector and time. No text of a query is kept, so none is written.",
			RunE: func(cmd *cobra.Command, _ []string) error {
				u, err := open(true)
				if err != nil {
					return err
				}
				defer u.Close()
				return exportUsage(cmd.OutOrStdout(), u, tenant)
			},
		}, "the `ID` to export alone"),
		flags(&cobra.Command{
			Use: "clear", Short: "Forget what is remembered, of one tenant or of all", Args: noArgs,
			Long: "Forget what is remembered, of one tenant or of all. While a sidecar has the file\nopen, a client clears its own by DELETE /sidecar/v1/usage.",
			RunE: func(cmd *cobra.Command, _ []string) error {
				u, err := open(true)
				if err != nil {
					return err
				}
				defer u.Close()
				return clearUsage(cmd.OutOrStdout(), u, tenant)
			},
		}, "the `ID` to clear alone"),
	)
	var sources []string
	imp := flags(&cobra.Command{
		Use: "import LOG…", Short: "Learn from logs of conversations",
		Long: `Learn from logs of conversations: JSON lines, each with "messages" in OpenAI's
form, in which calls whose results are no errors are learned, or with "query" or
"messages" and "gold", the tools that were called next. "tenant" of a line, an ID,
says whose it is; --tenant does so for all.`,
		Example: "  sidecar usage import calls.jsonl --usage memory.jsonl --catalog tools.jsonl",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{errors.New("usage import: no log"), usageHint}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCatalogs(cmd.Context(), sources, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			u, err := open(false)
			if err != nil {
				return err
			}
			defer u.Close()
			for _, log := range args {
				if err := learnLog(u, log, tenant, c.Index(), cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			return nil
		},
	}, "the `ID` whose the logs are (default: that of clients without a key)")
	imp.Flags().StringArrayVar(&sources, "catalog", []string{"demo"}, "catalog of the tools, as for serve; may be repeated")
	cmd.AddCommand(imp)
	return cmd
}

func showUsage(w io.Writer, u *store.Usage) error {
	fmt.Fprintf(w, "%-18s %8s %8s %10s\n", "tenant", "queries", "tools", "bytes")
	for _, id := range u.Tenants() {
		queries, tools, size := u.Memory(id).Stats()
		note := ""
		if id == u.Tenant("") {
			note = "  clients without a key"
		}
		if _, err := fmt.Fprintf(w, "%-18s %8d %8d %10d%s\n", id, queries, tools, size, note); err != nil {
			return err
		}
	}
	return nil
}

func exportUsage(w io.Writer, u *store.Usage, tenant string) error {
	enc := json.NewEncoder(w)
	for _, id := range u.Tenants() {
		if tenant != "" && tenant != id {
			continue
		}
		for _, e := range u.Memory(id).Events() {
			if err := enc.Encode(struct {
				Tenant string               `json:"tenant"`
				Event  retrievalusage.Event `json:"event"`
			}{id, e}); err != nil {
				return err
			}
		}
	}
	return nil
}

func clearUsage(w io.Writer, u *store.Usage, tenant string) error {
	n, all := 0, u.Tenants()
	if tenant != "" {
		all = []string{tenant}
	}
	for _, id := range all {
		queries, err := u.Clear(id)
		if err != nil {
			return err
		}
		n += queries
	}
	_, err := fmt.Fprintf(w, "%d queries forgotten\n", n)
	return err
}

func openMemory(path string, stderr io.Writer) (*store.Usage, error) {
	u, err := store.OpenUsage(store.UsageConfig{Path: path, Log: func(line string) { fmt.Fprintf(stderr, "sidecar: %s\n", line) }})
	if err != nil {
		return nil, &usageError{fmt.Errorf("--usage %s: %w", path, err), usageHint}
	}
	return u, nil
}

// openUsage opens what --usage names: the file of a memory, if there is one, and
// logs, which teach it. A memory without a file ends with the process.
func openUsage(files []string, c *catalog.Catalog, stderr io.Writer) (*store.Usage, error) {
	memory := ""
	var logs []string
	for _, f := range files {
		isMemory, err := looksLikeMemory(f)
		switch {
		case err != nil:
			return nil, &usageError{fmt.Errorf("--usage: %w", err), usageHint}
		case !isMemory:
			logs = append(logs, f)
		case memory != "":
			return nil, &usageError{fmt.Errorf("--usage %s and %s: both are memories", memory, f), usageHint}
		default:
			memory = f
		}
	}
	u, err := openMemory(memory, stderr)
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		if c == nil {
			return nil, errors.Join(&usageError{fmt.Errorf("--usage %s: a log teaches what tools of --catalog are called for, and there is no catalog", log), "give --catalog"}, u.Close())
		}
		if err := learnLog(u, log, "", c.Index(), stderr); err != nil {
			return nil, errors.Join(err, u.Close())
		}
	}
	return u, nil
}

// looksLikeMemory goes by the first line: that of a memory says so, and a file that
// is empty or not there becomes one.
func looksLikeMemory(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false, err
	}
	head = bytes.TrimSpace(head[:n])
	return len(head) == 0 || bytes.HasPrefix(head, []byte(`{"usage_memory":`)), nil
}

// logLine is a line of a log.
type logLine struct {
	Tenant   string `json:"tenant"`
	At       int64  `json:"at"` // Unix seconds
	Query    string `json:"query"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		CallID  string          `json:"tool_call_id"`
		Calls   []struct {
			ID       string `json:"id"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Gold []string   `json:"gold"`
	Any  [][]string `json:"gold_any"`
}

const maxLogLine = 16 << 20 // bytes

// learnLog teaches u a log. Lines that can't be read are counted and passed over;
// what they teach is told on stderr.
func learnLog(u *store.Usage, path, tenant string, ix *retrieval.Index, stderr io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return &usageError{fmt.Errorf("usage log: %w", err), usageHint}
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 64<<10), maxLogLine)
	lines, calls, bad := 0, 0, 0
	var first error
	for sc.Scan() {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		lines++
		events, who, err := readLogLine(sc.Bytes(), ix)
		for _, e := range events {
			if tenant != "" {
				who = tenant
			}
			if who == "" {
				who = u.Tenant("")
			}
			if err = u.Add(who, e); err == nil {
				calls += len(e.Tools)
			}
		}
		if err != nil {
			if bad++; first == nil {
				first = fmt.Errorf("line %d: %w", lines, err)
			}
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("usage log %s: behind line %d: %w", path, lines, err)
	}
	if bad > 0 {
		fmt.Fprintf(stderr, "sidecar: --usage %s: %d of %d lines are passed over; the first: %v\n", path, bad, lines, first)
	}
	if calls == 0 && lines > 0 {
		return &usageError{fmt.Errorf("usage log %s: %d lines, and no call of a tool that the catalog has", path, lines), usageHint}
	}
	fmt.Fprintf(stderr, "sidecar: --usage %s: %d calls of %d lines learned\n", path, calls, lines)
	return nil
}

// readLogLine returns what one line teaches.
func readLogLine(line []byte, ix *retrieval.Index) (events []retrievalusage.Event, tenant string, err error) {
	var w logLine
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, "", err
	}
	var msgs []retrievalusage.Message
	if w.Query != "" {
		msgs = append(msgs, retrievalusage.Message{Role: "user", Text: w.Query})
	}
	for _, m := range w.Messages {
		text, err := retrievalbench.Content(m.Content)
		if err != nil {
			return nil, "", err
		}
		msg := retrievalusage.Message{Role: m.Role, Text: text, ResultOf: m.CallID}
		for _, c := range m.Calls {
			msg.Calls = append(msg.Calls, retrievalusage.Call{ID: c.ID, Name: c.Function.Name})
		}
		msgs = append(msgs, msg)
	}
	if len(msgs) == 0 {
		return nil, "", errors.New(`neither "messages" nor "query"`)
	}
	gold := w.Gold
	for _, step := range w.Any {
		if len(step) > 0 && len(w.Gold) == 0 {
			gold = append(gold, step[0])
		}
	}
	if len(gold) > 0 { // the call that comes next, and its result
		next := retrievalusage.Message{Role: "assistant"}
		for i, name := range gold {
			next.Calls = append(next.Calls, retrievalusage.Call{ID: fmt.Sprint(i), Name: name})
		}
		msgs = append(msgs, next)
		for i := range gold {
			msgs = append(msgs, retrievalusage.Message{Role: "tool", Text: "done", ResultOf: fmt.Sprint(i)})
		}
	}
	for i, m := range msgs {
		if m.Role != "assistant" || len(m.Calls) == 0 || len(gold) > 0 && i != len(msgs)-1-len(gold) {
			continue
		}
		if e, ok := retrievalusage.Learned(ix, msgs, i); ok {
			e.At = time.Unix(w.At, 0)
			events = append(events, e)
		}
	}
	return events, w.Tenant, nil
}
