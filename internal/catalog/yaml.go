package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
	"go.yaml.in/yaml/v3"
)

// yamlToJSON writes one YAML document as JSON, members in their order. A text
// of few bytes may name a billion values by aliases; at most so many bytes are
// written.
func yamlToJSON(raw []byte, most int) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	w := yamlWriter{most: most}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, errors.New("no YAML document")
	}
	if err := w.value(doc.Content[0], 0); err != nil {
		return nil, err
	}
	return w.out, nil
}

type yamlWriter struct {
	out  []byte
	most int
}

// maxYAMLDepth is deeper than any API description: 64 levels of a schema,
// each two or three of the document.
const maxYAMLDepth = 256

func (w *yamlWriter) value(n *yaml.Node, depth int) error {
	if depth > maxYAMLDepth {
		return fmt.Errorf("line %d: nested deeper than %d levels", n.Line, maxYAMLDepth)
	}
	if len(w.out) > w.most {
		return fmt.Errorf("line %d: more than %d MB when its aliases are written out", n.Line, w.most>>20)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		w.out = append(w.out, '[')
		for i, e := range n.Content {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			if err := w.value(e, depth+1); err != nil {
				return err
			}
		}
		w.out = append(w.out, ']')
	case yaml.MappingNode:
		w.out = append(w.out, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: a key that is no scalar", key.Line)
			}
			if key.Tag == "!!merge" {
				return fmt.Errorf("line %d: merge keys (<<) are not supported; write the members out", key.Line)
			}
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.out = append(jsontext.AppendString(w.out, key.Value), ':')
			if err := w.value(n.Content[i+1], depth+1); err != nil {
				return err
			}
		}
		w.out = append(w.out, '}')
	case yaml.ScalarNode:
		return w.scalar(n)
	default:
		return fmt.Errorf("line %d: not a value", n.Line)
	}
	return nil
}

func (w *yamlWriter) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		w.out = append(w.out, "null"...)
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return err
		}
		w.out = strconv.AppendBool(w.out, b)
	case "!!int":
		if isNumber(n.Value) {
			w.out = append(w.out, n.Value...)
			return nil
		}
		var i int64 // 0x1f, 1_000
		if err := n.Decode(&i); err != nil {
			return fmt.Errorf("line %d: number %.40q", n.Line, n.Value)
		}
		w.out = strconv.AppendInt(w.out, i, 10)
	case "!!float":
		if isNumber(n.Value) {
			w.out = append(w.out, n.Value...)
			return nil
		}
		var f float64
		if err := n.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return fmt.Errorf("line %d: %.40q is no number of JSON", n.Line, n.Value)
		}
		w.out = strconv.AppendFloat(w.out, f, 'g', -1, 64)
	default: // strings, and dates, which JSON has as strings
		w.out = jsontext.AppendString(w.out, n.Value)
	}
	return nil
}

// isNumber says whether s is a number as JSON spells it.
func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9') && json.Valid([]byte(s))
}
