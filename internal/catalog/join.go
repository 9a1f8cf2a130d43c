package catalog

import (
	"fmt"
	"slices"

	"github.com/toolsidecar/sidecar/retrieval"
)

// Join makes one catalog of several, in their order. A name that several of
// them have is lost in none: each of those tools gets the name of its catalog
// before its own, as in github__search, whatever the order of the catalogs.
// Two catalogs must not have the same name.
func Join(list ...*Catalog) (*Catalog, error) {
	switch len(list) {
	case 0:
		return nil, nil
	case 1:
		return list[0], nil
	}
	sources := make(map[string]bool)
	count := make(map[string]int)
	for _, c := range list {
		if sources[c.name] {
			return nil, fmt.Errorf("catalog %s twice; give one of them another name, as in name=%s", c.name, c.name)
		}
		sources[c.name] = true
		for i := range c.tools {
			count[c.tools[i].Name]++
		}
	}
	taken := make(map[string]bool, len(count))
	for name, n := range count {
		if n == 1 {
			taken[name] = true
		}
	}
	var tools []retrieval.Tool
	name := ""
	for _, c := range list {
		if name != "" {
			name += " + "
		}
		name += c.name
		for _, t := range c.tools {
			if count[t.Name] > 1 {
				t = renamed(t, free(qualified(c.short(), t.Name, DefaultLimits.NameBytes), func(s string) bool { return taken[s] }))
				taken[t.Name] = true
			}
			tools = append(tools, t)
		}
	}
	return New(name, slices.Clip(tools))
}

// free is name, or name with the first number behind it that nobody has.
func free(name string, taken func(string) bool) string {
	for n := 1; ; n++ {
		try := name
		if n > 1 {
			suffix := fmt.Sprintf("_%d", n)
			try = shorten(name, DefaultLimits.NameBytes-len(suffix)) + suffix
		}
		if !taken(try) {
			return try
		}
	}
}

// renamed is t under another name.
func renamed(t retrieval.Tool, name string) retrieval.Tool {
	t.Name, t.Given = name, t.Name
	t.Raw, t.Schema = assemble(name, t.Description, t.Schema)
	return t
}
