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
	"github.com/toolsidecar/sidecar/grammar/accept"
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
		draft   string
		formats bool
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "check (--schema FILE | --tool NAME) [flags] [INSTANCE…]",
		Short: "Judge whether a JSON instance fits a schema or a tool, and say why not",
		Long: `Judge whether a JSON instance fits a schema or a tool, and say why not: the
byte at which it stops fitting, what was expected there, and the validation
envelope that a model would be told. INSTANCE is a file, or - for standard
input, the default.

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
			d, err := draftOf(draft)
			if err != nil {
				return err
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
			r.NotJudged = []string{}
			if r.tool || w == grammar.Closed {
				c, err := grammar.JudgeContext(cmd.Context(), grammar.Tool{Name: r.Name, Schema: raw}, w)
				if err != nil {
					return fmt.Errorf("check: can't be judged: %w", err)
				}
				r.automaton = c.Accept()
				r.NotJudged = append(r.NotJudged, c.Undecided()...)
			} else {
				var err error
				if r.automaton, err = accept.Compile(cmd.Context(), raw, accept.Options{Draft: d, Formats: formats}); err != nil {
					return fmt.Errorf("check: can't be judged: %w", err)
				}
				if !formats {
					r.NotJudged = append(r.NotJudged, grammar.Undecided(raw)...)
				}
			}
			if len(args) == 0 {
				args = []string{"-"}
			}
			bad := 0
			for _, path := range args {
				text, err := readInput(cmd, path)
				if err != nil {
					return fmt.Errorf("check: %w", err)
				}
				x := r.check(path, text)
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
	f.StringVar(&draft, "draft", "", "draft of a --schema without $schema, in the open world: 2020-12, 2019-09, 7, 6, 4 or openapi-3.1 (default: 2020-12)")
	f.BoolVar(&formats, "formats", false, "with --schema in the open world: format asserts instead of being an annotation")
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

	tool      bool              // the instances are arguments: one object
	automaton *accept.Automaton // judges
}

type checkResult struct {
	Instance string `json:"instance"`
	Verdict  string `json:"verdict"` // fits, misfit or undecided
	// Where the text stops fitting: bytes from 0; null if it doesn't.
	Offset   *int            `json:"offset"`
	Pointer  string          `json:"pointer,omitempty"` // to the value in which it stops fitting
	Want     string          `json:"want,omitempty"`    // what could have stood there, or why it can't be told
	Envelope json.RawMessage `json:"envelope,omitempty"`
}

func (r *checkReport) check(path string, text []byte) checkResult {
	x := checkResult{Instance: path, Verdict: "fits"}
	at := len(text) - len(bytes.TrimLeft(text, " \t\r\n"))
	if r.tool && at < len(text) && text[at] != '{' {
		x.Verdict, x.Offset, x.Want = "misfit", &at, "an object"
		x.Envelope = (&grammar.Misfit{InputValue: string(text), ErrorType: "type", Expected: "object"}).Envelope(r.Name)
		return x
	}
	err := r.automaton.Check(text)
	if err == nil {
		return x
	}
	var stop *accept.StopError
	if !errors.As(err, &stop) {
		x.Verdict, x.Want = "undecided", err.Error()
		return x
	}
	x.Verdict, x.Offset, x.Pointer, x.Want = "misfit", &stop.Offset, stop.Pointer, strings.Join(stop.Expected, " or ")
	x.Envelope = grammar.Envelope(r.Name, grammar.Explain(r.automaton, text, r.tool, stop)...)
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
			fmt.Fprintf(&b, "%s: can't be judged by %s\n  %s\n", x.Instance, r.Name, x.Want)
			continue
		}
		fmt.Fprintf(&b, "%s: does not fit %s (%s world)\n", x.Instance, r.Name, r.World)
		at := x.Pointer
		if at == "" {
			at = "the value"
		}
		fmt.Fprintf(&b, "  stops fitting at byte %d, in %s", *x.Offset, at)
		if x.Want != "" {
			fmt.Fprintf(&b, "; expected %s", x.Want)
		}
		fmt.Fprintf(&b, "\n  %s\n", x.Envelope)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
