package proxy

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/openai"
)

// Held tells how well the engine holds the calls of one tool.
type Held struct {
	Name string `json:"name"`
	// Status is proved, bounded(k), checked or unconstrained, as grammar.Proof
	// has it; unproved while a tool that should fit has not been looked at.
	Status string `json:"status"`
}

const (
	unconstrained = "unconstrained"
	checkedAfter  = "checked"
	unproved      = "unproved"
)

// heldBy tells how well each tool is held. What is not known yet is asked for
// and stands in a later record: a proof may take a second. Only a structural tag
// holds a tool exactly, so that only of tags anything is to be proved.
func (s *stages) heldBy(syntax grammar.Syntax, tools []*grammar.Checked, written []grammar.ToolEmission) []Held {
	out := make([]Held, len(written))
	for i, e := range written {
		out[i] = Held{e.Name, checkedAfter}
		if !e.Exact {
			continue
		}
		out[i].Status = unproved
		at := slices.IndexFunc(tools, func(t *grammar.Checked) bool { return t.Name() == e.Name })
		if at < 0 {
			continue
		}
		switch p, asked, err := tools[at].Known(syntax, grammar.StructuralTag); {
		case !asked:
			s.prover.want(unprovedTool{tools[at], syntax})
		case err == nil:
			out[i].Status = p.Status
		}
	}
	return out
}

func heldByNothing(tools []*grammar.Checked) (list []Held) {
	for _, t := range tools {
		list = append(list, Held{t.Name(), unconstrained})
	}
	return list
}

// heldByEngine are the tools of a request that passes through: the engine may
// hold them by itself, or not.
func heldByEngine(o *openai.Object) (list []Held) {
	var tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if v, ok := o.Get("tools"); !ok || json.Unmarshal(v.Raw, &tools) != nil {
		return nil
	}
	for _, t := range tools {
		if t.Function.Name != "" {
			list = append(list, Held{t.Function.Name, unconstrained})
		}
	}
	return list
}

// unheld says that nothing holds the tools, but for the check of their calls.
func (r *Record) unheld() {
	r.Held = slices.Clone(r.Held)
	for i := range r.Held {
		r.Held[i].Status = unconstrained
	}
}

// statusOf is a status without its bound.
func statusOf(status string) string {
	status, _, _ = strings.Cut(status, "(")
	return status
}

// An unprovedTool is one and how its calls are written.
type unprovedTool struct {
	*grammar.Checked
	syntax grammar.Syntax
}

// A prover finds proofs one after the other beside the requests.
type prover struct {
	asked chan unprovedTool
	wg    sync.WaitGroup
}

// maxAsked is how many tools wait for their proof; of more a later request asks
// again.
const maxAsked = 256

// newProver starts a prover, which ends with ctx and the proof that it is at. A
// fault in a proof is told, and the next one begins.
func newProver(ctx context.Context, fault func(any)) *prover {
	p := &prover{asked: make(chan unprovedTool, maxAsked)}
	p.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case tool := <-p.asked:
				if ctx.Err() == nil {
					prove(tool, fault)
				}
			}
		}
	})
	return p
}

func prove(tool unprovedTool, fault func(any)) {
	defer func() {
		if f := recover(); f != nil {
			fault(f)
		}
	}()
	// An error says that the text can't be read back: the status stays unproved.
	_, _ = tool.Proved(tool.syntax, grammar.StructuralTag)
}

func (p *prover) want(tool unprovedTool) {
	select {
	case p.asked <- tool:
	default:
	}
}
