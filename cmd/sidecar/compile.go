package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/models/wire"
)

func newCompileCmd() *cobra.Command {
	var (
		target  string
		sources []string
		schemas []string
		choice  string
		world   string
		family  string
		version string
		many    bool
		prove   bool
		asJSON  bool

		vocabulary string
		answers    int
	)
	cmd := &cobra.Command{
		Use:   "compile [flags] [TOOL…]",
		Short: "Write what holds an engine to the tools, in the engine's own notation",
		Long: `Write what holds an engine to the tools, in the engine's own notation. TOOL are
names; without any, all tools of the catalog and all schemas are taken, in
their order.

  structural-tag  response_format of vLLM and SGLang on xgrammar (default)
  legacy-tag      response_format of their guidance backends; tool_choice auto only
  gbnf            grammar of llama.cpp
  lark            grammar of llguidance
  regex           for any engine; a tool whose values nest without end is refused
  json-schema     the arguments of one tool as a schema that says nothing else
  mask-stats      nothing for an engine, but numbers: what the token masks of each
                  tool are like for --tokenizer, on answers written at random

On standard error stands for each tool whether it is held exactly (whatever the
engine finishes fits the schema) or is checked after the reply, and why. With
--prove the text is read back by the rules of its notation and compared with
the automaton of the tool: proved, bounded(k) (nothing longer than k bytes was
looked at), checked or unconstrained, with a shortest text that one has and the
other not. With --json this report and what is written are one object on standard output.`,
		Example: `  sidecar compile orders__get_order orders__refund_order > format.json
  sidecar compile --catalog tools.json --choice required --parallel --json | jq .tools
  sidecar compile --schema arguments.json --world open
  sidecar compile --tools tools.json --target gbnf --tool-choice required > grammar.gbnf`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch target {
			case "structural-tag", "legacy-tag", "gbnf", "lark", "regex", "json-schema":
			case "mask-stats":
				if prove || answers < 1 {
					return &usageError{errors.New("compile: mask-stats writes no text to --prove, and takes at least one of --answers"), "leave them out"}
				}
			default:
				return &usageError{fmt.Errorf("compile: no target %q", target), "targets are structural-tag, legacy-tag, gbnf, lark, regex, json-schema and mask-stats"}
			}
			f, err := wire.ByName(family)
			if err != nil {
				return &usageError{fmt.Errorf("compile: --family: %w", err), "give the family whose calls the model writes"}
			}
			if f.Trigger() == "" {
				return &usageError{fmt.Errorf("compile: family %s has no syntax for calls", family), "give a family with tools, such as hermes"}
			}
			w := grammar.Closed
			switch world {
			case "closed":
			case "open":
				w = grammar.Open
			default:
				return &usageError{fmt.Errorf("compile: --world %s", world), "give open or closed"}
			}
			tools, err := compileTools(cmd, sources, schemas, args)
			if err != nil {
				return err
			}
			if target == "mask-stats" {
				return writeMaskStats(cmd, vocabulary, tools, w, answers, asJSON)
			}
			c := grammar.Choice{Parallel: many}
			switch choice {
			case "auto", "required", "none":
				c.Mode = grammar.Mode(choice)
			default:
				c.Mode, c.Name = grammar.Named, choice
			}
			r, err := compileReply(f, tools, w, c, target, version, prove)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}
			if err := r.print(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if r.Text != "" {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", strings.TrimSuffix(r.Text, "\n"))
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", r.Format)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&target, "target", "structural-tag", "what to write: structural-tag, legacy-tag, gbnf, lark, regex, json-schema or mask-stats")
	f.StringArrayVar(&sources, "catalog", nil, "catalog of the tools: demo, FILE or DIR; may be repeated (default demo, unless --schema is given)")
	f.StringArrayVar(&sources, "tools", nil, "the same: a `FILE` of tools")
	f.StringArrayVar(&schemas, "schema", nil, "JSON Schema `FILE` of one more tool, named after the file; may be repeated")
	f.StringVar(&choice, "tool-choice", "auto", "auto, required, none, or the `NAME` of the one tool to be called")
	f.StringVar(&choice, "choice", "auto", "the same")
	f.Lookup("choice").Hidden = true
	f.BoolVar(&many, "parallel", false, "allow more than one call")
	f.StringVar(&world, "world", "closed", "open or closed: whether silent objects let undeclared keys through")
	f.StringVar(&family, "family", "hermes", "model family, which says how a call is written")
	f.StringVar(&version, "xgrammar", "0.2.8", "`VERSION` of xgrammar in the engine")
	f.BoolVar(&prove, "prove", false, "read the text back and compare it with what was meant")
	f.StringVar(&vocabulary, "tokenizer", "", "with mask-stats: tokenizer.json or *.tiktoken `FILE` (default: Qwen3's vocabulary)")
	f.IntVar(&answers, "answers", 8, "with mask-stats: answers written for each tool")
	f.BoolVar(&asJSON, "json", false, "write format and report as one JSON object")
	return cmd
}

func compileTools(cmd *cobra.Command, sources, schemas, names []string) ([]grammar.Tool, error) {
	var tools []grammar.Tool
	if len(sources) == 0 && len(schemas) == 0 {
		sources = []string{"demo"}
	}
	if len(sources) > 0 {
		c, err := openCatalogs(cmd.Context(), sources, cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		for _, t := range c.Tools() {
			tools = append(tools, grammar.Tool{Name: t.Name, Schema: t.Schema})
		}
	}
	for _, path := range schemas {
		raw, err := readInput(cmd, path)
		if err != nil {
			return nil, fmt.Errorf("compile: --schema %w", err)
		}
		name := "arguments"
		if path != "-" {
			name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		}
		tools = append(tools, grammar.Tool{Name: name, Schema: raw})
	}
	at := map[string]int{}
	for i, t := range tools {
		if _, ok := at[t.Name]; ok {
			return nil, &usageError{fmt.Errorf("compile: two tools are named %s", t.Name), "rename one of the files"}
		}
		at[t.Name] = i
	}
	if len(names) == 0 {
		return tools, nil
	}
	var some []grammar.Tool
	taken := map[string]bool{}
	for _, name := range names {
		i, ok := at[name]
		if !ok {
			return nil, &usageError{fmt.Errorf("compile: no tool %s", name), fmt.Sprintf("find it: sidecar search %q", strings.NewReplacer("_", " ", "-", " ").Replace(name))}
		}
		if !taken[name] {
			some = append(some, tools[i])
		}
		taken[name] = true
	}
	return some, nil
}

// compileReport is the JSON answer of the command.
type compileReport struct {
	Target string `json:"target"`
	// Format is the value of response_format, with structural-tag.
	Format json.RawMessage `json:"response_format,omitempty"`
	// Text is what is written with any other target.
	Text string `json:"text,omitempty"`
	// Lazy: the text holds the reply from Triggers on.
	Lazy     bool           `json:"grammar_lazy,omitempty"`
	Triggers []string       `json:"triggers,omitempty"`
	Bytes    int            `json:"bytes"` // of format or text
	Exact    int            `json:"exact"` // tools held exactly
	Checked  int            `json:"checked"`
	Tools    []compiledTool `json:"tools"`
}

type compiledTool struct {
	Name    string   `json:"name"`
	Exact   bool     `json:"exact"`
	Reasons []string `json:"reasons"` // why not exact
	*provedTool
}

// provedTool is what --prove adds.
type provedTool struct {
	Status string `json:"status"`
	Equal  bool   `json:"equal"` // what was written is what was meant
	// Wider is a text that was written and not meant, Narrower one that was
	// meant and not written.
	Wider    *string `json:"wider,omitempty"`
	Narrower *string `json:"narrower,omitempty"`
	// Misfit is a text that was written and doesn't fit the schema, of a checked
	// tool; InSchema: there is none, all states were looked at.
	Misfit   *string `json:"misfit,omitempty"`
	InSchema bool    `json:"in_schema"`
	States   int     `json:"states"` // pairs of them that were compared
}

func compileReply(f *wire.Family, tools []grammar.Tool, w grammar.World, c grammar.Choice, target, version string, prove bool) (*compileReport, error) {
	var compiled []*grammar.Checked
	byName := map[string]*grammar.Checked{}
	var bad error
	for _, t := range tools {
		if c.Mode == grammar.None || c.Mode == grammar.Named && t.Name != c.Name {
			continue
		}
		checked, err := grammar.Compile(t, w)
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		compiled = append(compiled, checked)
		byName[t.Name] = checked
	}
	if bad != nil {
		return nil, fmt.Errorf("compile: %w", bad)
	}
	if len(compiled) == 0 && c.Mode == grammar.Named {
		return nil, &usageError{fmt.Errorf("compile: --choice %s: no such tool among those given", c.Name), "give auto, required, none, or the name of a tool"}
	}
	syntax := grammar.SyntaxOf(f)
	r := &compileReport{Target: target, Tools: []compiledTool{}}
	var held []grammar.ToolEmission
	if target == "structural-tag" {
		e, err := grammar.Tag(syntax, compiled, c, grammar.Engine{Name: "xgrammar", Version: version})
		if err != nil {
			return nil, fmt.Errorf("compile: %w", err)
		}
		r.Format = append(append([]byte(`{"type":"structural_tag","format":`), e.Format...), '}')
		r.Bytes, held = len(r.Format), e.Tools
	} else {
		t, err := grammar.Write(syntax, compiled, c, grammar.Target(target))
		if err != nil {
			return nil, fmt.Errorf("compile: %w", err)
		}
		r.Text, r.Lazy = t.Text, t.Lazy
		if r.Lazy {
			r.Triggers = []string{syntax.Trigger}
		}
		r.Bytes, held = len(r.Text), t.Tools
	}
	for _, t := range held {
		x := compiledTool{t.Name, t.Exact, append([]string{}, t.Reasons...), nil}
		if prove {
			w, err := byName[t.Name].WrittenIn(syntax, grammar.Target(target))
			var p grammar.Proof
			if err == nil {
				p, err = w.Prove()
			}
			if err != nil {
				return nil, fmt.Errorf("compile: --prove: %w", err)
			}
			x.provedTool = &provedTool{p.Status, p.Equal, p.Wider, p.Narrower, p.Accept.Wrong, p.Accept.Proved, p.States}
		}
		if r.Tools = append(r.Tools, x); t.Exact {
			r.Exact++
		} else {
			r.Checked++
		}
	}
	return r, nil
}

// print lists the tools that are not exact, and of the others the number.
func (r *compileReport) print(w io.Writer) error {
	var b strings.Builder
	for _, t := range r.Tools {
		status := "checked"
		if t.Exact {
			status = "exact"
		}
		if t.provedTool != nil {
			status = t.Status
		}
		if !t.Exact || t.provedTool != nil || len(r.Tools) <= 20 {
			fmt.Fprintf(&b, "%-8s %s\n", status, t.Name)
		}
		for _, why := range t.Reasons {
			fmt.Fprintf(&b, "           %s\n", oneLine(why, 200))
		}
		if t.provedTool == nil {
			continue
		}
		if t.Wider != nil {
			fmt.Fprintf(&b, "           written and not meant: %s\n", oneLine(*t.Wider, 200))
		}
		if t.Misfit != nil {
			fmt.Fprintf(&b, "           written and doesn't fit: %s\n", oneLine(*t.Misfit, 200))
		}
		if t.Narrower != nil {
			fmt.Fprintf(&b, "           meant and not written: %s\n", oneLine(*t.Narrower, 200))
		}
	}
	fmt.Fprintf(&b, "%s: %s exact, %s checked after the reply; %s bytes\n", counted(len(r.Tools), "tool"), thousands(r.Exact), thousands(r.Checked), thousands(r.Bytes))
	_, err := io.WriteString(w, b.String())
	return err
}
