package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/proxy"
)

// clients is the option that says what each client may use: a section of the
// configuration file, or the name of a file that holds it.
func clients(path *string, dst **proxy.Clients) *option {
	o := text("clients", path, "", "YAML `FILE` that says which tools each client may use; the configuration file may hold it as the section clients")
	o.mapping = func(file string, v *yaml.Node) (err error) {
		*dst, err = readClients(file, v)
		return err
	}
	return o
}

// loadClients reads a file of clients: the section alone, or under its name.
func loadClients(path string) (*proxy.Clients, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc, more yaml.Node
	all := yaml.NewDecoder(bytes.NewReader(raw))
	if err := all.Decode(&doc); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := all.Decode(&more); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	} else if err == nil {
		return nil, fmt.Errorf("%s:%d: a second document; one is read, so put all clients into it", path, more.Line)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: empty; a mapping of clients is expected", path)
	}
	root := aliased(doc.Content[0])
	if root.Kind == yaml.MappingNode && len(root.Content) == 2 && root.Content[0].Value == "clients" {
		root = aliased(root.Content[1])
	}
	return readClients(path, root)
}

// readClients reads the section: client by client what it may use. A client is
// named by its API key, by sha256: and the hash of it, or by any name with "key"
// in its entry; "default" is for everybody else.
func readClients(file string, v *yaml.Node) (*proxy.Clients, error) {
	at := func(n *yaml.Node, format string, args ...any) error {
		return fmt.Errorf("%s:%d: clients: %s", file, n.Line, fmt.Sprintf(format, args...))
	}
	if v.Kind != yaml.MappingNode {
		return nil, at(v, "a mapping is expected, found %s", describe(v))
	}
	var list []proxy.Client
	lines := map[string]bool{}
	for i := 0; i+1 < len(v.Content); i += 2 {
		key, body := v.Content[i], aliased(v.Content[i+1])
		if lines[key.Value] {
			return nil, at(key, "%s: listed twice", shownKey(key.Value))
		}
		lines[key.Value] = true
		one := proxy.Client{Name: shownKey(key.Value)}
		if body.Kind != yaml.MappingNode && body.ShortTag() != "!!null" {
			return nil, at(body, "%s: a mapping with allow, deny or max_risk is expected, found %s", one.Name, describe(body))
		}
		named := false
		fields := map[string]bool{}
		for j := 0; j+1 < len(body.Content); j += 2 {
			field, value := body.Content[j], aliased(body.Content[j+1])
			spelled := strings.ReplaceAll(field.Value, "-", "_")
			if fields[spelled] {
				return nil, at(field, "%s: %s: given twice; leave one", one.Name, field.Value)
			}
			fields[spelled] = true
			var err error
			switch field.Value {
			case "key", "keys":
				named = true
				var keys []string
				keys, err = texts(value)
				one.Keys = append(one.Keys, keys...)
			case "key_sha256":
				named = true
				var keys []string
				keys, err = texts(value)
				for _, k := range keys {
					one.Keys = append(one.Keys, "sha256:"+strings.TrimPrefix(k, "sha256:"))
				}
			case "allow":
				if one.Rules.Allow, err = texts(value); err == nil && len(one.Rules.Allow) == 0 {
					one.Rules.Deny = append(one.Rules.Deny, "*") // an empty list allows nothing
				}
			case "deny":
				var deny []string
				deny, err = texts(value)
				one.Rules.Deny = append(one.Rules.Deny, deny...)
			case "max_risk", "max-risk":
				if value.Kind != yaml.ScalarNode {
					return nil, at(value, "%s: %s: A0, A1, A2 or A3 is expected", one.Name, field.Value)
				}
				one.Rules.MaxRisk, err = catalog.ParseRisk(value.Value)
			default:
				return nil, at(field, "%s: unknown key %s; there are key, key_sha256, allow, deny and max_risk", one.Name, field.Value)
			}
			if err != nil {
				return nil, at(value, "%s: %s: %v", one.Name, field.Value, err)
			}
		}
		if !named && one.Name != proxy.DefaultClient {
			one.Keys = []string{key.Value}
		}
		list = append(list, one)
	}
	c, err := proxy.NewClients(list)
	if bad := (*proxy.ClientError)(nil); errors.As(err, &bad) {
		return nil, at(v.Content[2*bad.At], "%v", err)
	}
	return c, err
}

// shownKey is the name of a client for messages: an API key is not shown.
func shownKey(key string) string {
	if strings.HasPrefix(key, "sk-") {
		return key[:3] + "…"
	}
	return key
}

// texts is a text or a list of texts.
func texts(v *yaml.Node) ([]string, error) {
	items := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		items = v.Content
	}
	out := []string{}
	for _, item := range items {
		item = aliased(item)
		if item.Kind != yaml.ScalarNode || item.ShortTag() == "!!null" {
			return nil, fmt.Errorf("text or a list of texts is expected, found %s", describe(item))
		}
		out = append(out, item.Value)
	}
	return out, nil
}
