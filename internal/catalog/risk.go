package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
	"github.com/toolsidecar/sidecar/models/toolname"
	"github.com/toolsidecar/sidecar/retrieval"
)

// Risk is a class of what calling a tool can do. The zero value is none: of a tool,
// that its source does not say; as a ceiling, that there is none.
type Risk uint8

const (
	A0 = Risk(toolname.Reads)
	A1 = Risk(toolname.Changes)
	A2 = Risk(toolname.Acts)
	A3 = Risk(toolname.Destroys) // or nobody can tell
)

func (r Risk) String() string {
	if r < A0 || r > A3 {
		return "none"
	}
	return [...]string{"A0", "A1", "A2", "A3"}[r-A0]
}

// ParseRisk reads A0 to A3, in either case.
func ParseRisk(s string) (Risk, error) {
	for r := A0; r <= A3; r++ {
		if strings.EqualFold(s, r.String()) {
			return r, nil
		}
	}
	return 0, fmt.Errorf("risk %.20q; there are A0 (reads), A1 (changes), A2 (acts on the world) and A3 (destroys)", s)
}

// RiskOf is the class of a tool: what its source declares, else what its name
// says. A tool whose name has no verb that is known is A3.
func RiskOf(t *retrieval.Tool) Risk {
	if t.Risk != 0 {
		return Risk(t.Risk)
	}
	name := t.Given
	if name == "" {
		name = t.Short()
	}
	if e := toolname.EffectOf(name); e != 0 {
		return Risk(e)
	}
	return A3
}

// declared is the class that a tool's object declares: x-risk wins, then the
// annotations of MCP, then the HTTP method of an operation (x-method, which the
// reader of OpenAPI descriptions writes). 0 where it declares none; an error where
// x-risk is no class.
func declared(compact []byte) (Risk, error) {
	var risk, notes, method []byte
	for key, v := range members(compact) {
		switch key {
		case "x-risk":
			risk = v
		case "annotations":
			notes = v
		case methodKey:
			method = v
		}
	}
	if risk != nil {
		if risk[0] != '"' {
			return 0, fmt.Errorf("x-risk is not a string")
		}
		return ParseRisk(text(risk))
	}
	if len(notes) > 0 && notes[0] == '{' {
		if r := annotated(notes); r != 0 {
			return r, nil
		}
	}
	if len(method) > 0 && method[0] == '"' {
		return riskOfMethod(text(method), compact), nil
	}
	return 0, nil
}

// annotated reads MCP's hints. A tool that says it is not read-only is destructive
// unless it says that it isn't, as the protocol has it; and one that only says it
// is not destructive has said nothing of what it does to the world.
func annotated(notes []byte) Risk {
	hints := map[string]bool{}
	for key, v := range members(notes) {
		switch string(v) {
		case "true", "false":
			hints[key] = string(v) == "true"
		}
	}
	readOnly, saysReadOnly := hints["readOnlyHint"]
	destructive, saysDestructive := hints["destructiveHint"]
	switch {
	case readOnly && !destructive:
		return A0
	case saysDestructive && destructive, saysReadOnly && !saysDestructive:
		return A3
	case saysDestructive && hints["openWorldHint"]:
		return A2
	case saysDestructive:
		return A1
	}
	return 0
}

// methodKey is where the reader of OpenAPI descriptions puts an operation's method.
const methodKey = "x-method"

// riskOfMethod is the class of an operation: what its method may do, raised by a
// verb of its name that is worse. POST means anything; without a verb it is A2.
func riskOfMethod(method string, compact []byte) Risk {
	named := Risk(0)
	for key, v := range members(compact) {
		if key == "name" && v[0] == '"' {
			named = Risk(toolname.EffectOf(text(v)))
		}
	}
	switch strings.ToLower(method) {
	case "get", "head", "options", "trace":
		if named == A3 { // a GET that deletes
			return A3
		}
		return A0
	case "delete":
		return A3
	case "put", "patch":
		return max(A1, named)
	}
	if named == 0 {
		return A2
	}
	return max(A1, named)
}

// riskMember is an operation's own x-risk, or its path's.
func riskMember(item, op *jsontext.Value) []jsontext.Member {
	for _, v := range []*jsontext.Value{op.Get("x-risk"), item.Get("x-risk")} {
		if v != nil {
			return []jsontext.Member{{Key: "x-risk", Val: v}}
		}
	}
	return nil
}

// AccessRules say which tools a client may use.
type AccessRules struct {
	Allow, Deny []string // patterns of names, with * and ?; see LiveConfig
	MaxRisk     Risk     // the worst class; 0 for any
}

// Check returns an error where a pattern is none.
func (a *AccessRules) Check() error {
	return checkPatterns(slices.Concat(a.Allow, a.Deny))
}

// Permits says whether a tool is allowed. One that is denied by the name its source
// gives it stays so when another source, by a tool of the same name, makes it get
// another. What a client declares of its own tools lowers no class: theirs is the
// worse of what is declared and what the name says.
func (a *AccessRules) Permits(t *retrieval.Tool, own bool) bool {
	if !fits(a.Allow, a.Deny, t.Name) || t.Given != "" && !fits(nil, a.Deny, t.Given) {
		return false
	}
	if a.MaxRisk == 0 {
		return true
	}
	risk := RiskOf(t)
	if own {
		named := *t
		named.Risk = 0
		risk = max(risk, RiskOf(&named))
	}
	return risk <= a.MaxRisk
}

// All says that everything is permitted.
func (a *AccessRules) All() bool { return len(a.Allow)+len(a.Deny) == 0 && a.MaxRisk == 0 }

// key tells rules apart.
func (a *AccessRules) key() string {
	return fmt.Sprintf("%q %q %d", a.Allow, a.Deny, a.MaxRisk)
}
