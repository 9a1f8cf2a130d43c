package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/toolsidecar/sidecar/prefix"
)

// volatileConfig says what becomes of lines that change from turn to turn.
type volatileConfig struct {
	Action string // off, move or strip
	File   string // of rules; "" for the built-in ones
}

// volatileRule is one rule as a file has it.
type volatileRule struct {
	Name    string
	Match   string // a regular expression (RE2) for a line
	Builtin string // or the name of a built-in one
	Action  string // move or strip; without it as --volatile says
}

// loadVolatile reads the rules. A file of rules turns them on by itself.
func loadVolatile(c *volatileConfig) (prefix.VolatileRules, error) {
	action := prefix.VolatileAction(c.Action)
	switch c.Action {
	case "off", "":
		if c.File == "" {
			return nil, nil
		}
		action = prefix.Move
	case "move", "strip":
	default:
		return nil, &usageError{fmt.Errorf("--volatile %q", c.Action), "give off, move or strip"}
	}
	if c.File == "" {
		var rules prefix.VolatileRules
		for _, name := range volatileNames() {
			r, _ := prefix.Builtin(name, action)
			rules = append(rules, r)
		}
		return rules, nil
	}
	rules, err := readVolatile(c.File, action)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--volatile-rules %s: %w", c.File, err), `write rules as in: rules: [{name: clock, match: "^Current time:", action: move}, {builtin: date, action: strip}]`}
	}
	return rules, nil
}

func volatileNames() []string {
	return slices.Sorted(maps.Keys(prefix.VolatileBuiltins()))
}

// readVolatile reads a YAML file with a list of rules, bare or under the key rules.
func readVolatile(path string, action prefix.VolatileAction) (prefix.VolatileRules, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, err
	}
	var file struct{ Rules []volatileRule }
	var into any = &file
	var doc yaml.Node
	if yaml.Unmarshal(raw, &doc) == nil && len(doc.Content) > 0 && doc.Content[0].Kind == yaml.SequenceNode {
		into = &file.Rules
	}
	if err := strictYAML(raw, into); err != nil {
		return nil, err
	}
	if len(file.Rules) == 0 {
		return nil, errors.New("it has no rules")
	}
	var rules prefix.VolatileRules
	for i, r := range file.Rules {
		rule := prefix.VolatileRule{Name: r.Name, Action: action}
		where := fmt.Sprintf("rule %d", i+1)
		switch r.Action {
		case "":
		case "move", "strip":
			rule.Action = prefix.VolatileAction(r.Action)
		default:
			return nil, fmt.Errorf("%s: action %q is neither move nor strip", where, r.Action)
		}
		switch {
		case (r.Match == "") == (r.Builtin == ""):
			return nil, fmt.Errorf("%s: either match or builtin is needed", where)
		case r.Builtin != "":
			b, ok := prefix.Builtin(r.Builtin, rule.Action)
			if !ok {
				return nil, fmt.Errorf("%s: builtin %q is none of %s", where, r.Builtin, strings.Join(volatileNames(), ", "))
			}
			rule.Match, rule.Longest = b.Match, b.Longest
			if rule.Name == "" {
				rule.Name = b.Name
			}
		default:
			if rule.Match, err = regexp.Compile(r.Match); err != nil {
				return nil, fmt.Errorf("%s: match: %w", where, err)
			}
			if rule.Name == "" {
				rule.Name = where
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// strictYAML decodes one document and takes no unknown keys.
func strictYAML(raw []byte, v any) error {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil {
		if err == io.EOF {
			return errors.New("it is empty")
		}
		return errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	return nil
}
