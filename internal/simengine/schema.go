package simengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// node is a JSON value whose objects keep the order of their members.
type node struct {
	kind byte // '{' '[' '"' '0' 't' 'f' 'n'
	keys []string
	vals []*node // of members or elements
	str  string
	num  json.Number
}

func parseNode(raw []byte) (*node, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	n, err := readNode(dec, 0)
	if err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, fmt.Errorf("something follows the JSON value")
	}
	return n, nil
}

func readNode(dec *json.Decoder, depth int) (*node, error) {
	if depth > 200 {
		return nil, fmt.Errorf("JSON is nested deeper than 200")
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := tok.(type) {
	case json.Delim:
		n := &node{kind: byte(v)}
		for dec.More() {
			if v == '{' {
				key, err := dec.Token()
				if err != nil {
					return nil, err
				}
				n.keys = append(n.keys, key.(string))
			}
			e, err := readNode(dec, depth+1)
			if err != nil {
				return nil, err
			}
			n.vals = append(n.vals, e)
		}
		_, err := dec.Token()
		return n, err
	case string:
		return &node{kind: '"', str: v}, nil
	case json.Number:
		return &node{kind: '0', num: v}, nil
	case bool:
		if v {
			return &node{kind: 't'}, nil
		}
		return &node{kind: 'f'}, nil
	}
	return &node{kind: 'n'}, nil
}

// get is the member of that name, the last one if there are several; nil when
// there is none or n is no object.
func (n *node) get(key string) *node {
	if n == nil || n.kind != '{' {
		return nil
	}
	for i := len(n.keys) - 1; i >= 0; i-- {
		if n.keys[i] == key {
			return n.vals[i]
		}
	}
	return nil
}

func (n *node) has(key string) bool { return n.get(key) != nil }

func (n *node) text() string {
	if n == nil || n.kind != '"' {
		return ""
	}
	return n.str
}

func (n *node) elements() []*node {
	if n == nil || n.kind != '[' {
		return nil
	}
	return n.vals
}

func (n *node) float() (float64, bool) {
	if n == nil || n.kind != '0' {
		return 0, false
	}
	f, err := n.num.Float64()
	return f, err == nil
}

func (n *node) int(otherwise int) int {
	f, ok := n.float()
	if !ok || f < 0 || f > 1<<30 {
		return otherwise
	}
	return int(f)
}

func (n *node) strings() []string {
	var out []string
	for _, e := range n.elements() {
		if e.kind == '"' {
			out = append(out, e.str)
		}
	}
	return out
}

// with is a copy of n with a member set, in its place if it was there.
func (n *node) with(key string, v *node) *node {
	out := &node{kind: '{', keys: append([]string(nil), n.keys...), vals: append([]*node(nil), n.vals...)}
	for i, k := range out.keys {
		if k == key {
			out.vals[i] = v
			return out
		}
	}
	out.keys = append(out.keys, key)
	out.vals = append(out.vals, v)
	return out
}

func (n *node) without(keys ...string) *node {
	out := &node{kind: '{'}
next:
	for i, k := range n.keys {
		for _, gone := range keys {
			if k == gone {
				continue next
			}
		}
		out.keys = append(out.keys, k)
		out.vals = append(out.vals, n.vals[i])
	}
	return out
}

// append writes n as JSON with the separators of Python's json.dumps.
func (n *node) append(dst []byte) []byte {
	switch n.kind {
	case '{':
		dst = append(dst, '{')
		for i, k := range n.keys {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendJSONString(dst, k)
			dst = append(dst, ": "...)
			dst = n.vals[i].append(dst)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for i, v := range n.vals {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = v.append(dst)
		}
		return append(dst, ']')
	case '"':
		return appendJSONString(dst, n.str)
	case '0':
		return append(dst, n.num...)
	case 't':
		return append(dst, "true"...)
	case 'f':
		return append(dst, "false"...)
	}
	return append(dst, "null"...)
}

func appendJSONString(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return append(dst, `""`...)
	}
	return append(dst, bytes.TrimRight(b.Bytes(), "\n")...)
}

func stringNode(s string) *node { return &node{kind: '"', str: s} }

func intNode(i int64) *node { return &node{kind: '0', num: json.Number(strconv.FormatInt(i, 10))} }

func numberNode(f float64) *node {
	return &node{kind: '0', num: json.Number(strconv.FormatFloat(f, 'g', -1, 64))}
}

func listNode(v ...*node) *node { return &node{kind: '[', vals: v} }

func boolNode(b bool) *node {
	if b {
		return &node{kind: 't'}
	}
	return &node{kind: 'f'}
}

var nullNode = &node{kind: 'n'}

func equalNodes(a, b *node) bool { return string(a.append(nil)) == string(b.append(nil)) }

// pointer follows a JSON pointer inside n, nil when it leads nowhere.
func (n *node) pointer(p string) *node {
	if p == "" {
		return n
	}
	for _, step := range strings.Split(strings.TrimPrefix(p, "/"), "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~", "%25", "%").Replace(step)
		if n != nil && n.kind == '[' {
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(n.vals) {
				return nil
			}
			n = n.vals[i]
			continue
		}
		n = n.get(step)
	}
	return n
}
