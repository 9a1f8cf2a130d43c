package grammar

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/memo"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Compile checks a tool's schema and compiles it. The error is a *SchemaError
// that names the place; a schema that no object fits is refused too, since a
// model held to it could write nothing. Results, refusals among them, are
// cached by the hash of world and schema, so that the same schema is compiled
// once, however it is spelled and by however many at a time.
//
// Compile does bounded work: size, nesting and number of subschemas have
// limits, and so has what is made of them (accept.Limits); nothing is fetched.
// `format` is an annotation in every draft: Check doesn't look at it.
func Compile(t Tool, world World) (*Checked, error) {
	return CompileContext(context.Background(), t, world)
}

// CompileContext is Compile until ctx ends; then the error is that of ctx, and
// nothing is remembered.
func CompileContext(ctx context.Context, t Tool, world World) (*Checked, error) {
	c, err := JudgeContext(ctx, t, world)
	if e := (*barrenError)(nil); err == nil && errors.As(c.content.barren, &e) {
		return nil, &SchemaError{Tool: t.Name, Loc: "#", Keyword: e.keyword, Msg: e.Error()}
	}
	return c, err
}

// Judge is Compile for those who only Check: any schema will do, also one that
// nothing fits.
func Judge(t Tool, world World) (*Checked, error) {
	return JudgeContext(context.Background(), t, world)
}

// JudgeContext is Judge until ctx ends, as CompileContext is Compile.
func JudgeContext(ctx context.Context, t Tool, world World) (*Checked, error) {
	if len(t.Schema) > maxSchemaBytes {
		return nil, &SchemaError{Tool: t.Name, Loc: "#", Msg: fmt.Sprintf("%d bytes; at most 1 MiB", len(t.Schema))}
	}
	key := sha256.Sum256(append([]byte{byte(world)}, t.Schema...))
	canonical, err := spellings.Get(ctx, key, func(context.Context) (memo.Key, error) { return canonicalKey(t.Schema, world), nil })
	if err != nil {
		return nil, err
	}
	c, err := compiled.Get(ctx, canonical, func(ctx context.Context) (*Checked, error) { return compile(ctx, t.Name, t.Schema, world) })
	if err != nil {
		var se *SchemaError
		if errors.As(err, &se) && se.Tool != t.Name {
			again := *se
			again.Tool = t.Name
			return nil, &again
		}
		return nil, err
	}
	if c.name != t.Name {
		named := *c
		named.name = t.Name
		return &named, nil
	}
	return c, nil
}

// canonicalKey is the same for schemas that differ in white space and in the
// spelling of strings. The order of members counts: models are held to it.
func canonicalKey(schema []byte, world World) memo.Key {
	text := schema
	if v, err := jsontext.Parse(schema, maxJSONDepth); err == nil {
		text = v.AppendTo(nil)
	}
	return sha256.Sum256(append([]byte{byte(world)}, text...))
}

// Reasons say why what Automaton writes may not fit: places and keywords that are
// left to Check. There are none if all that it writes fits.
func (c *Checked) Reasons() []string { return slices.Clone(c.content.reasons) }

// compiled remembers results: 256 MiB of what tools hold, some 100 kB each, with
// what was found out by using them. spellings finds their keys.
var (
	compiled = memo.New(256<<20, func(c *Checked, err error) int {
		if err != nil {
			return len(err.Error())
		}
		return c.bytes()
	})
	spellings = memo.New(4<<20, func(memo.Key, error) int { return len(memo.Key{}) })
)

// bytes is about what a tool holds, but for what Automaton keeps, which has a
// bound of its own.
func (c *Checked) bytes() int {
	n := len(c.raw) + len(c.judge.schema) + c.content.bytes() + int(c.judge.bytes.Load())
	for _, r := range c.content.reasons {
		n += len(r)
	}
	return n
}

func compile(ctx context.Context, name string, raw []byte, world World) (*Checked, error) {
	root := &jsontext.Value{Kind: '{'}
	if len(raw) > 0 && string(raw) != "null" {
		var err error
		if root, err = jsontext.Parse(raw, maxJSONDepth); err != nil {
			return nil, &SchemaError{Tool: name, Loc: "#", Msg: err.Error()}
		}
		if root.Kind == 'n' {
			root = &jsontext.Value{Kind: '{'}
		}
	}
	if !root.IsSchema() {
		return nil, &SchemaError{Tool: name, Loc: "#", Msg: "a schema is an object, true or false"}
	}
	if root.Kind == 't' {
		root = &jsontext.Value{Kind: '{'}
	}
	if r := root.Get("$schema"); r != nil && r.Kind != '"' {
		return nil, &SchemaError{Tool: name, Loc: "#/$schema", Keyword: "$schema", Msg: "not a string"}
	}
	plainRefs, err := survey(name, root)
	if err != nil {
		return nil, err
	}
	if world == Closed {
		root = closeWorld(root, plainRefs)
	}
	j, err := newJudge(ctx, root.AppendTo(nil))
	if err != nil {
		return nil, schemaError(name, err)
	}
	c := &Checked{name: name, raw: string(raw), world: world, judge: j, parts: &parts{}, proofs: &proofs{}}
	c.content = contentOf(root, plainRefs)
	c.automaton = &automatonOnce{lang: c.content.lang, defs: c.content.defs}
	c.content.lang, c.content.defs = nil, nil
	return c, nil
}

// schemaError says of which tool an error of package accept is.
func schemaError(name string, err error) error {
	var refused *accept.RefusedError
	var limit *accept.LimitError
	switch {
	case errors.As(err, &refused):
		loc := refused.Path
		if refused.Keyword != "" {
			loc += "/" + jsontext.EscapePointer(refused.Keyword)
		}
		return &SchemaError{Tool: name, Loc: "#" + loc, Keyword: refused.Keyword, Msg: clipText(refused.Reason, 300)}
	case errors.As(err, &limit):
		return &SchemaError{Tool: name, Loc: "#", Keyword: limit.Keyword, Msg: limit.Error()}
	}
	return err
}
