package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/grammar"
)

// maxInstance is one byte more than what a check takes, so that longer input
// is refused and not cut.
const maxInstance = 16<<20 + 1

func newCheckCmd() *cobra.Command {
	var (
		schema  string
		tool    string
		sources []string
		world   string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "check (--schema FILE | --tool NAME) [flags] [INSTANCE…]",
		Short: "Judge whether a JSON instance fits a schema or a tool, and say why not",
		Long: `Judge whether a JSON instance fits a schema or a tool, and say why not: the
byte at which it stops being JSON, and the validation envelope that a model
would be told. INSTANCE is a file, or - for standard input, the default.

A bare schema is taken by the letter and takes any JSON value (open world). A
tool takes one object, and no keys that it doesn't declare (closed world).

The exit status is 1 if an instance doesn't fit or can't be judged. What the
schema says and isn't judged, format above all, is named.`,
		Example: `  echo '{"limit": 5}' | sidecar check --tool orders__list_orders
  sidecar check --schema schema.json a.json b.json --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (schema == "") == (tool == "") {
				return &usageError{errors.New("check: give either --schema or --tool"), "as in: sidecar check --schema schema.json instance.json"}
			}
			r := &checkReport{World: world, tool: tool != "", Results: []checkResult{}}
			if world == "" {
				if r.World = "open"; r.tool {
					r.World = "closed"
				}
			}
			w := grammar.Closed
			switch r.World {
			case "open":
				w = grammar.Open
			case "closed":
			default:
				return &usageError{fmt.Errorf("check: --world %s", world), "give open or closed"}
			}
			var raw []byte
			if r.tool {
				c, err := openCatalogs(cmd.Context(), sources, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				t, ok := c.Lookup(tool)
				if !ok {
					return &usageError{fmt.Errorf("check: no tool %s in %s", tool, c.Name()), fmt.Sprintf("find it: sidecar search %q", strings.NewReplacer("_", " ", "-", " ").Replace(tool))}
				}
				r.Name, raw = tool, t.Schema
			} else {
				var err error
				if raw, err = readInput(cmd, schema); err != nil {
					return fmt.Errorf("check: --schema %w", err)
				}
				raw = bytes.TrimSpace(bytes.TrimPrefix(raw, []byte("\ufeff")))
				if len(raw) == 0 || string(raw) == "null" {
					return fmt.Errorf("check: --schema %s: a schema is an object, true or false", schema)
				}
				r.Name = schema
			}
			c, err := grammar.Judge(grammar.Tool{Name: r.Name, Schema: raw}, w)
			if err != nil {
				return fmt.Errorf("check: can't be judged: %w", err)
			}
			r.NotJudged = append([]string{}, c.Undecided()...)
			if len(args) == 0 {
				args = []string{"-"}
			}
			bad := 0
			for _, path := range args {
				text, err := readInput(cmd, path)
				if err != nil {
					return fmt.Errorf("check: %w", err)
				}
				x := r.check(c, path, text)
				if x.Verdict != "fits" {
					bad++
				}
				r.Results = append(r.Results, x)
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), r)
			} else {
				err = r.print(cmd.OutOrStdout())
			}
			if err == nil && bad > 0 {
				err = fmt.Errorf("check: %d of %s not found to fit", bad, counted(len(args), "instance"))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&schema, "schema", "", "JSON Schema `FILE`, or - for standard input")
	f.StringVar(&tool, "tool", "", "`NAME` of a tool of the catalog")
	f.StringArrayVar(&sources, "catalog", []string{"demo"}, "catalog of the tool: demo, FILE or DIR; may be repeated")
	f.StringVar(&world, "world", "", "open or closed: whether silent objects let undeclared keys through (default: closed for a tool, open for a schema)")
	f.BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// readInput reads a file, or standard input for "-"; at most maxInstance bytes.
func readInput(cmd *cobra.Command, path string) ([]byte, error) {
	if path == "-" {
		b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxInstance))
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return b, nil
	}
	f, err := os.Open(path)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxInstance))
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// checkReport is the JSON answer of the command.
type checkReport struct {
	Name      string        `json:"name"` // of the tool, or the schema's file
	World     string        `json:"world"`
	NotJudged []string      `json:"not_judged"`
	Results   []checkResult `json:"results"`

	tool bool
}

type checkResult struct {
	Instance string `json:"instance"`
	Verdict  string `json:"verdict"` // fits, misfit or undecided
	// Where the text stops being JSON: bytes from 0; null if it is JSON.
	Offset   *int            `json:"offset"`
	Want     string          `json:"want,omitempty"` // what could have stood there
	Envelope json.RawMessage `json:"envelope,omitempty"`
}

func (r *checkReport) check(c *grammar.Checked, path string, text []byte) checkResult {
	x := checkResult{Instance: path, Verdict: "fits"}
	misfits := c.Misfits(text, r.tool)
	if len(misfits) == 0 {
		return x
	}
	x.Verdict = "misfit"
	if m := misfits[0]; m.ErrorType == "too_long" || m.ErrorType == "too_deep" {
		x.Verdict = "undecided"
	}
	x.Envelope = grammar.Envelope(c.Name(), misfits...)
	if at := misfits[0].Offset; at >= 0 {
		x.Offset, x.Want = &at, misfits[0].Message
	}
	// The stream knows objects only, and there what may come next.
	if r.tool || bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		var s grammar.Stream
		_, err := s.Feed(text)
		var stopped *grammar.StreamError
		switch {
		case errors.As(err, &stopped):
			at := stopped.Offset
			x.Offset, x.Want = &at, stopped.Want
		case s.Partial() && x.Verdict == "misfit":
			at := s.Offset()
			x.Offset, x.Want = &at, "more: the text ends inside the object"
		}
	}
	return x
}

func (r *checkReport) print(w io.Writer) error {
	var b strings.Builder
	for _, n := range r.NotJudged {
		fmt.Fprintf(&b, "not judged: %s\n", oneLine(n, 200))
	}
	for _, x := range r.Results {
		switch x.Verdict {
		case "fits":
			fmt.Fprintf(&b, "%s: fits %s (%s world)\n", x.Instance, r.Name, r.World)
			continue
		case "undecided":
			fmt.Fprintf(&b, "%s: can't be judged by %s\n", x.Instance, r.Name)
		default:
			fmt.Fprintf(&b, "%s: does not fit %s (%s world)\n", x.Instance, r.Name, r.World)
		}
		if x.Offset != nil {
			fmt.Fprintf(&b, "  not JSON from byte %d on; wanted: %s\n", *x.Offset, x.Want)
		}
		fmt.Fprintf(&b, "  %s\n", x.Envelope)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
