package accept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A resource is a schema with a URI of its own: a document, or a part of one
// with an $id.
type resource struct {
	uri     string // without fragment
	root    *jsontext.Value
	path    *path
	draft   Draft
	vocab   vocabulary
	formats bool // asserted
	anchors map[string]place
	dynamic map[string]place // the anchors that are dynamic; "" for $recursiveAnchor
}

// A place is a schema within a resource.
type place struct {
	v    *jsontext.Value
	in   *resource
	path *path
}

// A path is a JSON pointer, or a document's URI where up is nil.
type path struct {
	up  *path
	tok string
}

func (p *path) String() string {
	if p == nil {
		return ""
	}
	if p.up == nil {
		if p.tok == "" {
			return ""
		}
		return p.tok + "#"
	}
	return p.up.String() + "/" + jsontext.EscapePointer(p.tok)
}

// to is the path of what tok names at p. Paths are made by the hundred, since
// every schema has one.
func (l *loader) to(p *path, tok string) *path {
	if len(l.paths) == cap(l.paths) {
		l.paths = make([]path, 0, min(512, 16+2*cap(l.paths)))
	}
	l.paths = append(l.paths, path{p, tok})
	return &l.paths[len(l.paths)-1]
}

// A loader reads documents and finds what references mean.
type loader struct {
	ctx       context.Context
	o         Options
	limits    Limits
	resources map[string]*resource
	roots     map[*jsontext.Value]*resource
	walked    map[*jsontext.Value]bool // schemas that stand where no keyword has one
	searched  map[string]bool          // given documents that were read to look for an $id
	values    int                      // JSON values in all documents
	schemas   int                      // walked
	paths     []path                   // room for more
}

func newLoader(ctx context.Context, o Options) *loader {
	return &loader{ctx: ctx, o: o, limits: o.Limits.orDefault(), resources: map[string]*resource{}, roots: map[*jsontext.Value]*resource{}}
}

func refuse(at *path, keyword, format string, a ...any) error {
	return &RefusedError{at.String(), keyword, fmt.Sprintf(format, a...)}
}

// document reads a text and walks it.
func (l *loader) document(uri string, text []byte, at *path) (*resource, error) {
	if len(text) > l.limits.Bytes {
		return nil, &LimitError{Limit: "bytes", Max: l.limits.Bytes}
	}
	v, err := jsontext.Parse(text, l.limits.Nesting)
	if err != nil {
		var syntax *jsontext.SyntaxError
		if errors.As(err, &syntax) && syntax.Code == "too_deep" {
			return nil, &LimitError{Limit: "nesting", Max: l.limits.Nesting}
		}
		return nil, refuse(at, "", "not JSON: %v", err)
	}
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	n, _ := v.Size()
	if l.values += n; l.values > l.limits.Values {
		return nil, &LimitError{Limit: "values", Max: l.limits.Values}
	}
	draft := l.o.Draft
	if draft == Default {
		draft = Draft2020
	}
	r := &resource{uri: uri, root: v, path: at, draft: draft, vocab: allVocabularies, formats: l.o.Formats}
	l.resources[uri] = r
	if err := l.identify(r, v, at, nil); err != nil {
		return nil, err
	}
	return r, l.walk(v, r, at)
}

// identify sets what the $schema and $id of a resource say about it.
func (l *loader) identify(r *resource, v *jsontext.Value, at *path, outer *resource) error {
	l.roots[v] = r
	s := v.Get("$schema")
	if s == nil && r.draft == OpenAPI31 && v.Has("openapi") { // a whole document says it so
		s = v.Get("jsonSchemaDialect")
	}
	if s != nil && s.Kind == '"' {
		if d, ok := draftOf(s.Str); ok {
			if d != Draft2020 || r.draft != OpenAPI31 {
				r.draft = d
			}
			r.vocab = allVocabularies
		} else if err := l.dialect(r, s.Str, at); err != nil {
			return err
		}
	}
	id := v.Get(idKeyword(r.draft))
	if id == nil || id.Kind != '"' || r.draft <= Draft07 && v.Has("$ref") {
		return nil
	}
	uri, fragment, _ := strings.Cut(id.Str, "#")
	if uri == "" {
		if fragment != "" && outer == nil {
			r.anchor(fragment, place{v, r, at})
		}
		return nil
	}
	abs, err := resolve(r.uri, uri)
	if err != nil {
		return refuse(at, idKeyword(r.draft), "%v", err)
	}
	if other := l.resources[abs]; other != nil && other != r {
		return refuse(at, idKeyword(r.draft), "%s names another schema as well", abs)
	}
	r.uri = abs
	l.resources[abs] = r
	return nil
}

func idKeyword(d Draft) string {
	if d == Draft04 {
		return "id"
	}
	return "$id"
}

func (r *resource) anchor(name string, p place) {
	if r.anchors == nil {
		r.anchors = map[string]place{}
	}
	r.anchors[name] = p
}

// dialect reads the metaschema of a $schema that is no draft's for the
// vocabularies that it names.
func (l *loader) dialect(r *resource, uri string, at *path) error {
	seen := map[string]bool{}
	for {
		if seen[uri] {
			return refuse(at, "$schema", "%s is its own metaschema, and no draft's", uri)
		}
		seen[uri] = true
		text, ok := l.given(uri)
		if !ok {
			return refuse(at, "$schema", "%s is no draft from 04 on, and not among the given documents", uri)
		}
		v, err := jsontext.Parse(text, l.limits.Nesting)
		if err != nil {
			return refuse(&path{tok: uri}, "", "not JSON: %v", err)
		}
		next := v.Get("$schema")
		if next == nil || next.Kind != '"' {
			return refuse(&path{tok: uri}, "$schema", "missing in a metaschema")
		}
		d, known := draftOf(next.Str)
		if known {
			r.draft, r.vocab = d, allVocabularies
		}
		if named := v.Get("$vocabulary"); named != nil && d >= Draft2019 {
			r.vocab = vCore
			for _, m := range named.Members {
				group, name, _ := strings.Cut(strings.TrimPrefix(m.Key, "https://json-schema.org/draft/"), "/vocab/")
				bit := vocabularyNames[name]
				if group != "2019-09" && group != "2020-12" || bit == 0 {
					if m.Val.IsTrue() {
						return refuse(&path{tok: uri}, "$vocabulary", "%s is required and not known", m.Key)
					}
					continue
				}
				r.vocab |= bit
				if d == Draft2019 && bit == vApplicator {
					r.vocab |= vUnevaluated
				}
				if name == "format-assertion" || name == "format" && m.Val.IsTrue() {
					r.formats = true
				}
			}
			return nil
		}
		if known {
			return nil
		}
		uri = next.Str
	}
}

func (l *loader) given(uri string) ([]byte, bool) {
	for _, u := range []string{uri, strings.TrimSuffix(uri, "#")} {
		if b, ok := l.o.Documents[u]; ok {
			return b, true
		}
	}
	return metaschema(strings.TrimSuffix(uri, "#"))
}

// walk checks the keywords of a schema and of those within it, and notes the
// resources and anchors that it finds.
func (l *loader) walk(v *jsontext.Value, r *resource, at *path) error {
	if l.schemas++; l.schemas&0xFFF == 0 && l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	if v.Kind != '{' {
		if why := schemaShape.misshapen(v, r.draft); why != "" {
			return refuse(at, "", "%s", why)
		}
		return nil
	}
	if r.root != v {
		if err := l.embedded(v, &r, at); err != nil {
			return err
		}
	}
	for i := range v.Members {
		m := &v.Members[i]
		k := lookup(m.Key, r.draft)
		if k == nil || k.vocab&r.vocab == 0 {
			continue
		}
		if why := k.shape.misshapen(m.Val, r.draft); why != "" {
			return refuse(at, m.Key, "%s", why)
		}
		var err error
		switch k.shape {
		case anchorShape:
			r.anchor(m.Val.Str, place{v, r, at})
			if k.name == "$dynamicAnchor" {
				r.dynamicAnchor(m.Val.Str, place{v, r, at})
			}
		case schemaShape, boolOrSchema:
			if m.Val.Kind == '{' {
				err = l.walk(m.Val, r, l.to(at, m.Key))
			}
		case schemasShape, itemsShape:
			if m.Val.Kind != '[' {
				err = l.walk(m.Val, r, l.to(at, m.Key))
				break
			}
			in := l.to(at, m.Key)
			for i, e := range m.Val.Elems {
				if err = l.walk(e, r, l.to(in, strconv.Itoa(i))); err != nil {
					return err
				}
			}
		case schemaMapShape, patternMapShape, dependShape:
			in := l.to(at, m.Key)
			for _, e := range m.Val.Members {
				if k.shape == dependShape && e.Val.Kind == '[' {
					if why := stringsShape.misshapen(e.Val, r.draft); why != "" {
						return refuse(in, e.Key, "%s", why)
					}
					continue
				}
				if err = l.walk(e.Val, r, l.to(in, e.Key)); err != nil {
					return err
				}
			}
		case stringsMap:
			for _, e := range m.Val.Members {
				if why := stringsShape.misshapen(e.Val, r.draft); why != "" {
					return refuse(l.to(at, m.Key), e.Key, "%s", why)
				}
			}
		}
		if k.name == "$recursiveAnchor" && m.Val.IsTrue() {
			r.dynamicAnchor("", place{v, r, at})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *resource) dynamicAnchor(name string, p place) {
	if r.dynamic == nil {
		r.dynamic = map[string]place{}
	}
	r.dynamic[name] = p
}

// embedded makes *r the resource that v begins, if it begins one.
func (l *loader) embedded(v *jsontext.Value, r **resource, at *path) error {
	outer := *r
	draft := outer.draft
	if s := v.Get("$schema"); s != nil && s.Kind == '"' {
		if d, ok := draftOf(s.Str); ok {
			draft = d
		}
	}
	id := v.Get(idKeyword(draft))
	if id == nil || id.Kind != '"' || draft <= Draft07 && v.Has("$ref") {
		return nil
	}
	if name, ok := strings.CutPrefix(id.Str, "#"); ok {
		if draft <= Draft07 && name != "" {
			outer.anchor(name, place{v, outer, at})
		}
		return nil
	}
	in := &resource{uri: outer.uri, root: v, path: at, draft: outer.draft, vocab: outer.vocab, formats: outer.formats}
	*r = in
	return l.identify(in, v, at, outer)
}

// resolve makes ref absolute; neither has a fragment.
func resolve(base, ref string) (string, error) {
	if ref == "" {
		return base, nil
	}
	u, err := url.Parse(ref)
	if err != nil {
		return "", fmt.Errorf("%q is no URI reference", ref)
	}
	if base == "" || u.IsAbs() {
		return u.String(), nil
	}
	b, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("%q is no URI", base)
	}
	return b.ResolveReference(u).String(), nil
}

// resource gives what has a URI: read before, given under it, or named so by an
// $id in a given document; nil if nothing has it.
func (l *loader) resource(uri string) (*resource, error) {
	if r := l.resources[uri]; r != nil {
		return r, nil
	}
	if text, ok := l.given(uri); ok {
		return l.document(uri, text, &path{tok: uri})
	}
	for _, name := range slices.Sorted(maps.Keys(l.o.Documents)) {
		if l.resources[name] != nil || l.searched[name] || !bytes.Contains(l.o.Documents[name], []byte(`id"`)) {
			continue
		}
		if l.searched == nil {
			l.searched = map[string]bool{}
		}
		l.searched[name] = true
		_, err := l.document(name, l.o.Documents[name], &path{tok: name})
		var refused *RefusedError // nobody asked for this one
		if err != nil && !errors.As(err, &refused) {
			return nil, err
		}
		if r := l.resources[uri]; r != nil {
			return r, nil
		}
	}
	return nil, nil
}

// find gives the schema that a reference in r means, and its fragment if that
// is an anchor.
func (l *loader) find(ref string, r *resource, at *path, keyword string) (place, string, error) {
	uri, fragment, _ := strings.Cut(ref, "#")
	target := r
	if uri != "" {
		abs, err := resolve(r.uri, uri)
		if err != nil {
			return place{}, "", refuse(at, keyword, "%v", err)
		}
		if target, err = l.resource(abs); err != nil {
			return place{}, "", err
		}
		if target == nil {
			return place{}, "", refuse(at, keyword, "%s is not among the given documents; nothing is fetched", abs)
		}
	}
	if strings.IndexByte(fragment, '%') >= 0 {
		plain, err := url.PathUnescape(fragment)
		if err != nil {
			return place{}, "", refuse(at, keyword, "%q is badly escaped", ref)
		}
		fragment = plain
	}
	if fragment != "" && fragment[0] != '/' {
		p, ok := target.anchors[fragment]
		if !ok {
			return place{}, "", refuse(at, keyword, "there is no anchor %q", fragment)
		}
		return p, fragment, nil
	}
	p := place{target.root, target, target.path}
	if fragment == "" {
		return p, "", nil
	}
	p, met, err := l.point(p, fragment[1:])
	switch {
	case err != nil:
		return place{}, "", err
	case p.v == nil:
		return place{}, "", refuse(at, keyword, "nothing is at %q", ref)
	case !met && !l.walked[p.v]:
		if l.walked == nil {
			l.walked = map[*jsontext.Value]bool{}
		}
		l.walked[p.v] = true
		err = l.walk(p.v, p.in, p.path)
	}
	return p, "", err
}

// point follows a JSON pointer from a schema. Met tells whether walk has come
// by; it has not where the pointer leads through what is no keyword. The value
// is nil if there is none.
func (l *loader) point(p place, pointer string) (to place, met bool, err error) {
	met = true
	at := schemaShape // of p.v
	for tok := range strings.SplitSeq(pointer, "/") {
		tok = jsontext.UnescapePointer(tok)
		next, _ := p.v.Child(tok)
		if next == nil {
			return place{}, false, nil
		}
		switch at {
		case schemaShape, boolOrSchema:
			k := lookup(tok, p.in.draft)
			if k == nil || k.vocab&p.in.vocab == 0 {
				at = anyShape
				break
			}
			at = k.shape
			if at == itemsShape && next.Kind != '[' {
				at = schemaShape
			}
		case schemasShape, itemsShape, schemaMapShape, patternMapShape, dependShape:
			at = schemaShape
		default:
			at = anyShape
		}
		p.v, p.path = next, l.to(p.path, tok)
		if in := l.roots[next]; in != nil {
			p.in, at, met = in, schemaShape, true
		} else if at == anyShape {
			met = false
		}
	}
	return p, met && (at == schemaShape || at == boolOrSchema), nil
}
